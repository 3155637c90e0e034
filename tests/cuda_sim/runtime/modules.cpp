#include "modules.h"

#include <cstdio>

namespace cuda_sim {
namespace {

std::recursive_mutex modules_mutex;
std::vector<Module*>& modules() {
  static auto* all = new std::vector<Module*>;
  return *all;
}

const TranslatedModule* translated(Module* m) {
  if (!m->translated) m->translated = translate(m, "");
  return m->translated;
}

const TranslatedVariable* find_variable(const TranslatedModule* m, const std::string& name) {
  for (const TranslatedVariable* v = m->variables; v->name; v++)
    if (name == v->name) return v;
  return nullptr;
}

Module* as_module(void** handle) { return reinterpret_cast<Module*>(handle); }

}  // namespace

bool resolve_kernel(Kernel* k) {
  std::lock_guard lock(modules_mutex);
  if (k->fn) return true;
  const TranslatedModule* m = translate(k->module, k->name);
  if (!m) return false;
  if (!k->module->translated) k->module->translated = m;
  for (const TranslatedKernel* t = m->kernels; t->name; t++) {
    if (k->name != t->name) continue;
    k->parameters.clear();
    for (uint32_t i = 0; i < t->parameter_count; i++) k->parameters.push_back({t->offsets[i], t->sizes[i]});
    k->parameter_bytes = t->parameter_bytes;
    k->static_shared = t->static_shared;
    k->max_threads = t->max_threads;
    k->fn = t->fn;
    return true;
  }
  fprintf(stderr, "cuda_sim: kernel %s isn't in its module's PTX\n", k->name.c_str());
  return false;
}

bool describe_kernel(Kernel* k) {
  std::lock_guard lock(modules_mutex);
  if (k->registers) return true;
  const std::string* ptx = ptx_of(k->module);
  PtxKernel found;
  if (!ptx || !describe(*ptx, k->name, &found)) return false;
  k->registers = found.registers;
  if (k->fn) return true;  // the rest is known from its translation
  k->max_threads = found.max_threads;
  k->static_shared = found.static_shared;
  return true;
}

char* module_globals(Module* m, int index) {
  std::lock_guard lock(modules_mutex);
  const TranslatedModule* t = translated(m);
  if (!t || !t->globals_size) return nullptr;
  char*& globals = m->globals[index];
  if (globals) return globals;
  int before = current_device;
  current_device = index;
  void* memory = nullptr;
  if (allocate(&memory, t->globals_size) == cudaSuccess) {
    globals = static_cast<char*>(memory);
    memset(mapped(globals), 0, t->globals_size);
    t->init_globals(globals);
  }
  current_device = before;
  return globals;
}

bool find_symbol(const void* host_variable, int index, void** address, size_t* size) {
  std::lock_guard lock(modules_mutex);
  for (Module* m : modules()) {
    auto found = m->variables.find(host_variable);
    if (found == m->variables.end()) continue;
    const TranslatedModule* t = translated(m);
    const TranslatedVariable* v = t ? find_variable(t, found->second) : nullptr;
    char* globals = v ? module_globals(m, index) : nullptr;
    if (!globals) return false;
    if (address) *address = globals + v->offset;
    if (size) *size = v->size;
    return true;
  }
  return false;
}

// What nvcc-built objects call at their start and end.
CUDA_API void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic, version;
    const void* data;
    void* file_name;
  };
  auto* m = new Module;
  m->fat_binary = static_cast<const unsigned char*>(static_cast<const Wrapper*>(wrapper)->data);
  std::lock_guard lock(modules_mutex);
  modules().push_back(m);
  return reinterpret_cast<void**>(m);
}
CUDA_API void __cudaRegisterFatBinaryEnd(void**) {}
CUDA_API void __cudaUnregisterFatBinary(void**) {}
CUDA_API void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int,
                                     void*, void*, void*, void*, int*) {
  register_kernel(host_function, as_module(handle), name);
}
CUDA_API void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* name, int, size_t, int,
                                int) {
  as_module(handle)->variables[host_variable] = name;
}
CUDA_API void __cudaRegisterManagedVar(void** handle, void** host_variable, char*, const char* name, int,
                                       size_t, int, int) {
  as_module(handle)->managed.push_back({host_variable, name});
}
CUDA_API char __cudaInitModule(void** handle) {  // managed variables: device 0's are everyone's
  Module* m = as_module(handle);
  char* globals = module_globals(m, 0);
  if (!globals) return 0;
  for (const Module::Managed& variable : m->managed)
    if (const TranslatedVariable* v = find_variable(m->translated, variable.name))
      *variable.host = globals + v->offset;
  return 1;
}

}  // namespace cuda_sim
