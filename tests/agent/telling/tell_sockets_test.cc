#include "agent/telling/tell_sockets.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "agent/telling/telling.h"
#include "base/process/files.h"
#include "gmock/gmock.h"
#include "tests/base/process/temp_dir.h"

namespace trainyard::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

namespace fs = std::filesystem;

// As a program does it that never waits. Whether it was taken.
bool send(const std::string& path, const std::string& text) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return ::sendto(fd.get(), text.data(), text.size(), MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&address), sizeof address) >= 0;
}

std::vector<std::pair<std::uint32_t, std::string>> readAll(TellSockets& sockets) {
  std::vector<std::pair<std::uint32_t, std::string>> said;
  sockets.read([&](std::uint32_t process, std::string_view text) {
    said.emplace_back(process, std::string(text));
  });
  return said;
}

TEST(TellSockets, EachProcessHasItsOwn) {
  const TempDir dir;
  std::string path;
  {
    auto sockets = TellSockets::open(dir.path(), dir.path(), 2);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    path = sockets->path(1);
    EXPECT_EQ(path, (dir.path() / "tell-1.sock").native());
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << "nobody else's";
    EXPECT_EQ(sockets->fds().size(), 2u);
    EXPECT_THAT(readAll(*sockets), IsEmpty()) << "and it does not wait";
    EXPECT_TRUE(send(path, "b"));
    EXPECT_TRUE(waitReadable(sockets->fds()[1], systemClock().now() + std::chrono::seconds(20)));
    EXPECT_TRUE(send(sockets->path(0), "a"));
    EXPECT_TRUE(send(path, ""));
    EXPECT_THAT(readAll(*sockets), ElementsAre(Pair(0, "a"), Pair(1, "b"), Pair(1, "")));
    EXPECT_TRUE(send(path, "late"));
    sockets->discard();
    EXPECT_THAT(readAll(*sockets), IsEmpty());
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST(TellSockets, WhoNeverReadsHoldsUpNobody) {
  const TempDir dir;
  auto sockets = TellSockets::open(dir.path(), dir.path(), 1);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_EQ(sockets->path(0), (dir.path() / "tell.sock").native());
  int taken = 0;
  while (taken < 100'000 && send(sockets->path(0), "x")) ++taken;
  EXPECT_LT(taken, 100'000);
  EXPECT_EQ(readAll(*sockets).size(), static_cast<std::size_t>(std::min(taken, 600)));
}

TEST(TellSockets, OfAHugeDatagramAsMuchComesAsShowsThatItIs) {
  const TempDir dir;
  auto sockets = TellSockets::open(dir.path(), dir.path(), 1);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_TRUE(send(sockets->path(0), std::string(100'000, 'x')));
  const auto said = readAll(*sockets);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].second.size(), kMaxTellingBytes + 1);
}

TEST(TellSockets, APathThatIsTooLongIsReplacedByAShortOne) {
  const TempDir dir;
  // With "/tell.sock" 107 characters just fit.
  std::string folder = dir.path().native() + "/";
  folder.resize(97, 'x');
  ASSERT_TRUE(makeDirectories(folder + "y", 0700).ok());
  ASSERT_TRUE(makeDirectories(folder, 0700).ok());
  EXPECT_EQ(TellSockets::open(folder, dir.path(), 1)->path(0), folder + "/tell.sock");
  std::string path;
  {
    auto sockets = TellSockets::open(folder + "y", dir.path(), 1);
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    path = sockets->path(0);
    EXPECT_EQ(fs::path(path).parent_path().parent_path(), dir.path());
    EXPECT_TRUE(send(path, "a"));
    EXPECT_THAT(readAll(*sockets), ElementsAre(Pair(0, "a")));
  }
  EXPECT_FALSE(fs::exists(fs::path(path).parent_path())) << "nothing is left";
  const auto elsewhere = TellSockets::open(folder + "y", folder + "y", 1);
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status();
  EXPECT_EQ(fs::path(elsewhere->path(0)).parent_path().parent_path(), "/tmp");
}

TEST(TellSockets, TakeTheNameFromAnAgentThatWasKilled) {
  const TempDir dir;
  ASSERT_TRUE(writeFileAtomically(dir.path() / "tell.sock", "left").ok());
  auto sockets = TellSockets::open(dir.path(), dir.path(), 1);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_TRUE(send(sockets->path(0), "a"));
  EXPECT_FALSE(TellSockets::open(dir.path() / "nowhere", dir.path(), 1).ok());
}

}  // namespace
}  // namespace trainyard::agent
