// Deleters for the objects of C libraries.
#pragma once

namespace trainyard {

// Calls the library's own function: std::unique_ptr<SSL_CTX, FreeWith<SSL_CTX_free>>.
template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

}  // namespace trainyard
