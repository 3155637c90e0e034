#include "transports/shm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <climits>

#include "base/error.h"
#include "base/memory_file.h"

namespace muster {
namespace {

constexpr uint64_t kMagic = 0x31474553'5453554dULL;  // "MUSTSEG1"
constexpr size_t kPage = 4096;

struct alignas(kCacheLine) Header {
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> token;
};

constexpr size_t kErrorAt = align_up(sizeof(Header), kCacheLine);
constexpr size_t kControlAt = kErrorAt + sizeof(ErrorRecord);

}  // namespace

void Doorbell::wake() {
  sleeping.store(0, std::memory_order_relaxed);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&sleeping), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Segment::Segment(const Geometry& g, Fd fd) : geometry_(g), fd_(std::move(fd)) {
  const size_t connections = static_cast<size_t>(g.nranks) * g.nranks * g.lanes;
  lines_at_ = align_up(kControlAt + sizeof(RankControl) * g.nranks, kPage);
  data_at_ = align_up(lines_at_ + connections * sizeof(ConnectionLines), kPage);
  bytes_ = data_at_ + connections * ByteRing::bytes_for(g.slot_bytes);
}

std::shared_ptr<Segment> Segment::create(const Geometry& g, uint64_t token, Fd* descriptor) {
  Fd fd = create_memory_file("muster", "shared memory", Segment(g, Fd()).bytes_);
  auto segment = map(g, fd);
  segment->reserve(0, segment->lines_at_);
  auto* header = reinterpret_cast<Header*>(segment->base_);
  header->token.store(token, std::memory_order_relaxed);
  header->magic.store(kMagic, std::memory_order_release);
  *descriptor = std::move(fd);
  return segment;
}

std::shared_ptr<Segment> Segment::map(const Geometry& g, const Fd& descriptor) {
  Fd own(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) fail_errno(errno, "duplicating the shared memory descriptor", "Check the limit on open files (ulimit -n)");
  struct stat st{};
  std::shared_ptr<Segment> s(new Segment(g, std::move(own)));
  if (fstat(descriptor.get(), &st) != 0) fail_errno(errno, "reading the size of shared memory");
  if (static_cast<size_t>(st.st_size) < s->bytes_)
    fail(Result::internal_error, "the shared memory received has {} bytes where {} were expected", st.st_size, s->bytes_);
  void* p = mmap(nullptr, s->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor.get(), 0);
  if (p == MAP_FAILED)
    fail_errno(errno, fmt::format("mapping {} bytes of shared memory", s->bytes_), "Check the limit on address space (ulimit -v)");
  s->base_ = static_cast<std::byte*>(p);
  return s;
}

Segment::~Segment() {
  if (base_) munmap(base_, bytes_);
}

uint64_t Segment::token() const {
  const auto* header = reinterpret_cast<const Header*>(base_);
  return header->magic.load(std::memory_order_acquire) == kMagic ? header->token.load(std::memory_order_relaxed) : 0;
}
ErrorRecord& Segment::error() { return *reinterpret_cast<ErrorRecord*>(base_ + kErrorAt); }
RankControl& Segment::control(int rank) { return reinterpret_cast<RankControl*>(base_ + kControlAt)[rank]; }

size_t Segment::index(int from, int to, int lane) const {
  return (static_cast<size_t>(from) * geometry_.nranks + to) * geometry_.lanes + lane;
}

// Without this a full memory shows as SIGBUS at the first touch.
void Segment::reserve(size_t offset, size_t bytes) {
  int r;
  do r = fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (r != 0 && errno == EINTR);
  if (r != 0)
    fail_errno(errno, fmt::format("reserving {} bytes of shared memory for a communicator of {} ranks", bytes, geometry_.nranks),
               "Free memory or raise the memory limit of this container, or lower MUSTER_SLOT_BYTES");
}

ConnectionLines* Segment::lines(int from, int to, int lane) {
  const size_t at = lines_at_ + index(from, to, lane) * sizeof(ConnectionLines);
  reserve(at, sizeof(ConnectionLines));
  return reinterpret_cast<ConnectionLines*>(base_ + at);
}

std::byte* Segment::data(int from, int to, int lane) {
  return base_ + data_at_ + index(from, to, lane) * ByteRing::bytes_for(geometry_.slot_bytes);
}

void Segment::reserve_data(int from, int to, int lane) {
  const size_t stride = ByteRing::bytes_for(geometry_.slot_bytes);
  reserve(data_at_ + index(from, to, lane) * stride, ByteRing::bytes_for(slot_bytes(lane)));
}

size_t Segment::resident_bytes() const {
  struct stat st{};
  return fstat(fd_.get(), &st) == 0 ? static_cast<size_t>(st.st_blocks) * 512 : 0;
}

ShmTransport::ShmTransport(std::shared_ptr<Segment> segment, int rank) : segment_(std::move(segment)), rank_(rank) {
  const size_t n = static_cast<size_t>(segment_->geometry().nranks) * segment_->geometry().lanes;
  senders_.resize(n);
  receivers_.resize(n);
}

SlotSender& ShmTransport::sender(int peer, int lane, size_t largest) {
  Sender& s = senders_[static_cast<size_t>(peer) * lanes() + lane];
  if (!s.end)
    s.end = std::make_unique<SlotSender>(segment_->lines(rank_, peer, lane), segment_->data(rank_, peer, lane), segment_->slot_bytes(lane),
                                         &segment_->control(peer).doorbell);
  if (largest > kInlineBytes && !s.has_data) {
    segment_->reserve_data(rank_, peer, lane);
    s.has_data = true;
  }
  return *s.end;
}

SlotReceiver& ShmTransport::receiver(int peer, int lane) {
  auto& r = receivers_[static_cast<size_t>(peer) * lanes() + lane];
  if (!r)
    r = std::make_unique<SlotReceiver>(segment_->lines(peer, rank_, lane), segment_->data(peer, rank_, lane), segment_->slot_bytes(lane),
                                       &segment_->control(peer).doorbell);
  return *r;
}

}  // namespace muster
