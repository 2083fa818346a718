# cmake -DIN=FILE -DOUT=FILE.cc -DNAME=function -P embed.cmake
# Writes a source file whose function NAME() returns the text of IN, so that no program needs the tree.
file(READ ${IN} TEXT)
file(WRITE ${OUT} "#include <string_view>

namespace trainyard::control::internal {

std::string_view ${NAME}() {
  return R\"TRAINYARD(${TEXT})TRAINYARD\";
}

}  // namespace trainyard::control::internal
")
