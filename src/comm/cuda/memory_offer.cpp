#include "comm/cuda/memory_offer.h"

#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace muster::cuda {
namespace {

using Kind = SharedPiece::Kind;
constexpr std::chrono::seconds kHandover{10};  // a process that is stopped for longer counts as out of reach

template <class Handle>
SharedPiece piece_of(Kind kind, uint64_t bytes, const Handle& handle) {
  SharedPiece p{kind, bytes};
  static_assert(sizeof handle <= sizeof p.handle && std::is_trivially_copyable_v<Handle>);
  std::memcpy(p.handle, &handle, sizeof handle);
  return p;
}

template <class Handle>
Handle handle_of(const SharedPiece& p) {
  Handle h;
  std::memcpy(&h, p.handle, sizeof h);
  return h;
}

PhysicalMemory import_piece(const SharedPiece& p, const std::string& whom) {
  if (p.kind == Kind::fabric) return PhysicalMemory::import(handle_of<FabricHandle>(p), p.bytes);
  const Fd fd = take_descriptor(handle_of<DescriptorTicket>(p), whom, Deadline::after(kHandover));
  return PhysicalMemory::import(fd, p.bytes);
}

}  // namespace

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::ipc:
      return "cudaIpc";
    case Kind::descriptor:
      return "file descriptor";
    case Kind::fabric:
      return "fabric handle";
    case Kind::none:
      break;
  }
  return "nothing";
}

MemoryOffer::MemoryOffer(const void* p, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(p);
  for (size_t done = 0; done < bytes;) {
    const auto found = PhysicalMemory::at(begin + done);
    if (!found && done == 0) {
      add_ipc(begin, bytes);
      return;
    }
    if (!found)
      fail(Result::unhandled_device_error, "of {} bytes at {} only the first {} are mapped memory of cuMemCreate", bytes, p, done);
    if (done == 0) offset_ = static_cast<uint64_t>(begin - found->begin);
    add_mapped(*found);
    done = static_cast<size_t>(found->begin + found->memory.bytes() - begin);
  }
}

void MemoryOffer::add_mapped(const PhysicalMemory::Mapped& m) {
  const PhysicalMemory& memory = m.memory;
  try {
    descriptors_.emplace_back(memory.descriptor());
    pieces_.push_back(piece_of(Kind::descriptor, memory.bytes(), descriptors_.back().ticket()));
  } catch (const Error& e) {
    try {
      pieces_.push_back(piece_of(Kind::fabric, memory.bytes(), memory.fabric_handle()));
    } catch (const Error&) {
      throw e;  // the fabric is the exception
    }
    log_debug(Topic::p2p, "GPU memory at {} is shared by a fabric handle: {}", static_cast<const void*>(m.begin), e.what());
  }
}

void MemoryOffer::add_ipc(const std::byte* p, size_t bytes) {
  const Allocation whole = allocation_around(p);
  offset_ = static_cast<uint64_t>(p - whole.begin);
  if (offset_ + bytes > whole.bytes)
    fail(Result::unhandled_device_error, "{} bytes at {} reach over the end of their allocation, of {} bytes at {}", bytes,
         static_cast<const void*>(p), whole.bytes, static_cast<const void*>(whole.begin));
  pieces_.push_back(piece_of(Kind::ipc, whole.bytes, export_memory(whole.begin, inspect(p).device)));
}

Reached reach_memory(int device, std::span<const SharedPiece> pieces, uint64_t offset, const std::string& whom) {
  if (pieces.empty() || pieces.front().kind == Kind::none) fail(Result::unhandled_device_error, "{} shares no GPU memory", whom);
  if (pieces.front().kind == Kind::ipc) {
    const auto memory = std::make_shared<const ImportedMemory>(device, handle_of<IpcHandle>(pieces.front()));
    return {memory, memory->data() + offset};
  }
  std::vector<PhysicalMemory> imported;
  for (const SharedPiece& p : pieces) imported.push_back(import_piece(p, whom));
  const auto memory = std::make_shared<const MappedMemory>(std::move(imported), std::span(&device, 1));
  return {memory, memory->data() + offset};
}

}  // namespace muster::cuda
