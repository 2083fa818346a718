#include "operator/cache/object_store.h"

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "operator/cache/reflector.h"

namespace trainyard::control {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Json = nlohmann::json;

Json object(const std::string& name, int version, const std::string& uid = "u",
            const std::string& job = "j") {
  return {{"metadata",
           {{"namespace", "ns"},
            {"name", name},
            {"uid", uid},
            {"resourceVersion", std::to_string(version)},
            {"labels", {{"job", job}}}}}};
}

std::string versionOf(const ObjectPtr& object) {
  return object ? std::to_string(objectVersion(*object)) : "-";
}
std::string versionOf(const PackedPtr& object) {
  return object ? std::to_string(object->version()) : "-";
}

std::vector<std::string> told(const std::vector<ObjectChange>& changes) {
  std::vector<std::string> result;
  for (const ObjectChange& change : changes) {
    result.push_back(fmt::format("{} {}>{}", change.key.name, versionOf(change.before),
                                 versionOf(change.after)));
  }
  return result;
}

class StoreTest : public testing::Test {
 protected:
  std::vector<std::string> names(const std::string& name,
                                 const std::optional<std::string>& but = std::nullopt) {
    std::vector<std::string> result;
    for (const PackedPtr& one : store_.byName(name, but))
      result.push_back(std::any_cast<std::string>(one->digest().summary));
    return result;
  }
  std::map<ObjectKey, PackedPtr> listed(const std::vector<Json>& objects) {
    std::map<ObjectKey, PackedPtr> result;
    for (const Json& one : objects) result[objectKey(one)] = store_.pack(one);
    return result;
  }
  ObjectStore store_{[](const Json& object) {
    return ObjectDigest{
        {object["metadata"]["labels"]["job"].get<std::string>(), "uid/" + objectUid(object)},
        objectKey(object).name};
  }};
};

TEST_F(StoreTest, KeepsWhatComes) {
  EXPECT_THAT(told(store_.put(object("a", 5))), ElementsAre("a ->5"));
  EXPECT_THAT(told(store_.put(object("a", 7))), ElementsAre("a 5>7"));
  EXPECT_THAT(told(store_.put(object("b", 6))), ElementsAre("b ->6"));
  EXPECT_EQ(store_.newestVersion(), 7u);
  EXPECT_EQ(versionOf(store_.get({"ns", "a"})), "7");
  EXPECT_EQ(store_.get({"other", "a"}), nullptr);
  EXPECT_THAT(told(store_.erase(object("a", 9))), ElementsAre("a 7>-"));
  EXPECT_EQ(store_.newestVersion(), 9u);
  EXPECT_EQ(store_.size(), 1u);
  store_.advance(20);
  store_.advance(15);
  EXPECT_EQ(store_.newestVersion(), 20u);
}

TEST_F(StoreTest, WhatIsOldChangesNothing) {
  store_.put(object("a", 7));
  EXPECT_THAT(told(store_.put(object("a", 7))), IsEmpty());
  EXPECT_THAT(told(store_.put(object("a", 6))), IsEmpty());
  EXPECT_EQ(versionOf(store_.get({"ns", "a"})), "7");
}

TEST_F(StoreTest, AListReplacesAllAndTellsWhatIsGone) {
  store_.put(object("gone", 3));
  store_.put(object("same", 4));
  store_.put(object("changed", 5));
  const auto changes =
      store_.replace(listed({object("same", 4), object("changed", 8), object("new", 7)}), 10);
  EXPECT_THAT(told(changes), ElementsAre("gone 3>-", "changed 5>8", "new ->7"));
  EXPECT_EQ(store_.newestVersion(), 10u);
  EXPECT_EQ(store_.size(), 3u);
  EXPECT_THAT(told(store_.replace({}, 2)), testing::SizeIs(3)) << "a server from a backup";
  EXPECT_EQ(store_.newestVersion(), 2u);
}

TEST_F(StoreTest, AnotherUidIsADeletionAndACreation) {
  store_.put(object("a", 3, "old"));
  EXPECT_THAT(told(store_.put(object("a", 9, "new"))), ElementsAre("a 3>-", "a ->9"));
  EXPECT_THAT(told(store_.replace(listed({object("a", 12, "newest")}), 12)),
              ElementsAre("a 9>-", "a ->12"));
  EXPECT_THAT(told(store_.erase(object("a", 13, "new"))), IsEmpty()) << "the end of a predecessor";
  EXPECT_EQ(store_.size(), 1u);
}

TEST_F(StoreTest, FindsByName) {
  store_.put(object("b", 1));
  store_.put(object("a", 2));
  store_.put(object("c", 3, "u", "other"));
  EXPECT_THAT(names("j"), ElementsAre("a", "b"));
  store_.put(object("a", 4, "u", "other"));
  EXPECT_THAT(names("j"), ElementsAre("b"));
  EXPECT_THAT(names("other"), ElementsAre("a", "c"));
  store_.erase(object("b", 5));
  EXPECT_THAT(names("j"), IsEmpty());
  store_.replace(listed({object("d", 6)}), 6);
  EXPECT_THAT(names("other"), IsEmpty());
  EXPECT_THAT(names("j"), ElementsAre("d"));
}

TEST_F(StoreTest, LeavesOutWhatHasAnotherNameToo) {
  store_.put(object("a", 1, "u1"));
  store_.put(object("b", 2, "u2"));
  EXPECT_THAT(names("j", "uid/u1"), ElementsAre("b"));
  EXPECT_THAT(names("j", "uid/u9"), ElementsAre("a", "b"));
  EXPECT_THAT(names("j", "j"), IsEmpty());
}

TEST(PackedObjects, AreTheSameWhenTheyAreRead) {
  for (
      const char* text : {
          "{}",
          R"({"metadata":{"name":"a","uid":"u","resourceVersion":"7"},"list":[],"none":null})",
          R"({"numbers":[0,-1,127,128,-129,65536,4294967296,-9223372036854775808,18446744073709551615]})",
          R"({"fractions":[0.1,-2.5,1e300,1.0],"yes":true,"no":false})",
          "{\"text\":[\"\",\"\\u0000\\n\",\"\xc3\xa9\"],\"deep\":{\"a\":{\"b\":[{\"c\":1}]}}}",
      }) {
    const Json object = Json::parse(text);
    const PackedObject packed(object, {});
    EXPECT_EQ(packed.unpack().dump(), object.dump());
    EXPECT_EQ(packed.uid(), objectUid(object));
    EXPECT_EQ(packed.version(), objectVersion(object));
  }
}

TEST(ObjectFields, OfOddObjects) {
  for (const char* text : {"{}", "{\"metadata\":null}", "{\"metadata\":{\"name\":1,\"uid\":[]}}"}) {
    const Json odd = Json::parse(text);
    EXPECT_EQ(objectKey(odd), ObjectKey{}) << text;
    EXPECT_EQ(objectUid(odd), "");
    EXPECT_EQ(objectVersion(odd), 0u);
  }
  EXPECT_EQ(parseResourceVersion("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(parseResourceVersion("12a"), 0u);
}

}  // namespace
}  // namespace trainyard::control
