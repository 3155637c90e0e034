// A library of the machine's that is looked for at run time. It stays loaded: drivers' libraries keep what they
// allocate in variables of their own, and some start threads, so that unloading them loses memory or crashes.
#pragma once

#include <dlfcn.h>

#include <string>

namespace muster {

class SharedLibrary {
 public:
  // `name`: as for dlopen.
  explicit SharedLibrary(const std::string& name)
      : handle_(dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)) {}
  ~SharedLibrary() {
    if (handle_) dlclose(handle_);
  }
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }

  // nullptr: it has no such function. Only of a library that was found.
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace muster
