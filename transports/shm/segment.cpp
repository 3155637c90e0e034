#include "transports/shm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <climits>

#include "base/error.h"
#include "base/memory_file.h"

namespace muster {
namespace {

constexpr size_t kPage = kSegmentPage;

}  // namespace

void Doorbell::wake() {
  sleeping.store(0, std::memory_order_relaxed);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&sleeping), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Segment::Segment(const Geometry& g, std::shared_ptr<const Fd> file, uint64_t offset)
    : geometry_(g), file_(std::move(file)), offset_(offset) {
  const size_t connections = static_cast<size_t>(g.nranks) * g.nranks * g.lanes;
  boards_at_ = align_up(kControlsAt + sizeof(RankControl) * g.nranks, kPage);
  lines_at_ = align_up(boards_at_ + sizeof(Board) * 2 * g.nranks, kPage);
  data_at_ = align_up(lines_at_ + connections * sizeof(ConnectionLines), kPage);
  signals_at_ = align_up(data_at_ + connections * ByteRing::bytes_for(g.slot_bytes), kPage);
  static_assert(kSignals * sizeof(uint64_t) % kPage == 0);
  bytes_ = signals_at_ + static_cast<size_t>(g.nranks) * g.nranks * kSignals * sizeof(uint64_t);
}

std::shared_ptr<Segment> Segment::create(const Geometry& g, uint64_t token, Fd* descriptor) {
  Fd fd = create_memory_file(kSegmentFile, "shared memory", Segment(g, nullptr, 0).bytes_);
  auto segment = map(g, fd);
  segment->reserve(0, segment->boards_at_);
  segment->write_head();
  segment->head().end.store(segment->bytes_, std::memory_order_relaxed);
  segment->head().token.store(token, std::memory_order_release);
  *descriptor = std::move(fd);
  return segment;
}

std::shared_ptr<Segment> Segment::map(const Geometry& g, const Fd& descriptor) {
  Fd own(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) fail_errno(errno, "duplicating the shared memory descriptor", "Check the limit on open files (ulimit -n)");
  struct stat st{};
  std::shared_ptr<Segment> s(new Segment(g, std::make_shared<const Fd>(std::move(own)), 0));
  if (fstat(descriptor.get(), &st) != 0) fail_errno(errno, "reading the size of shared memory");
  if (static_cast<size_t>(st.st_size) < s->bytes_)
    fail(Result::internal_error, "the shared memory received has {} bytes where {} were expected", st.st_size, s->bytes_);
  s->map_memory();
  return s;
}

uint64_t Segment::next_number() { return head().children.fetch_add(1, std::memory_order_relaxed) + 1; }

Segment::Room Segment::allot(const Geometry& g) {
  Segment room(g, file_, 0);
  const Room r{next_number(), head().end.fetch_add(room.bytes_, std::memory_order_relaxed)};
  // Growing a file past this limit doesn't fail, it ends the process with SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < r.offset + room.bytes_)
    fail(Result::system_error, "one more communicator grows the file of shared memory to {} bytes (sparse), and the file size limit is {}. Raise it (ulimit -f)",
         r.offset + room.bytes_, static_cast<size_t>(limit.rlim_cur));
  room.offset_ = r.offset;
  room.reserve(0, room.boards_at_);
  room.write_head();
  return r;
}

// Through the file: who allots a segment doesn't map it.
void Segment::write_head() {
  SegmentHead h{};
  h.magic = kSegmentMagic;
  h.layout = kLayout;
  std::string_view(MUSTER_VERSION).copy(h.version, sizeof h.version - 1);
  h.head_bytes = sizeof(SegmentHead);
  h.control_bytes = sizeof(RankControl);
  h.nranks = static_cast<uint32_t>(geometry_.nranks);
  h.bytes = bytes_;
  if (pwrite(file_->get(), &h, sizeof h, static_cast<off_t>(offset_)) != static_cast<ssize_t>(sizeof h))
    fail_errno(errno, "writing the head of shared memory");
}

void Segment::describe(uint64_t id, uint64_t parent, int size, std::string_view name) {
  SegmentHead& h = head();
  h.parent = parent;
  h.size = static_cast<uint32_t>(size);
  name.copy(h.name, kNameBytes - 1);
  h.id.store(id, std::memory_order_release);
}

std::shared_ptr<Segment> Segment::map(const Geometry& g, const Segment& first, const Room& room) {
  std::shared_ptr<Segment> s(new Segment(g, first.file_, room.offset));
  s->map_memory();
  return s;
}

void Segment::map_memory() {
  void* p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_->get(), static_cast<off_t>(offset_));
  if (p == MAP_FAILED)
    fail_errno(errno, fmt::format("mapping {} bytes of shared memory", bytes_),
               "Check the limits on address space (ulimit -v) and on mappings (sysctl vm.max_map_count)");
  base_ = static_cast<std::byte*>(p);
  error_ = reinterpret_cast<ErrorRecord*>(base_ + kErrorAt);
  controls_ = reinterpret_cast<RankControl*>(base_ + kControlsAt);
}

void Segment::leave() {
  if (offset_ == 0) return;  // the file goes with its last descriptor
  if (head().gone.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint64_t>(geometry_.nranks)) discard();
}

void Segment::discard() { punch(0, bytes_); }

void Segment::punch(size_t offset, size_t bytes) noexcept {
  fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_ + offset), static_cast<off_t>(bytes));
}

Segment::~Segment() {
  if (base_) munmap(base_, bytes_);
}

uint64_t Segment::token() const { return head().token.load(std::memory_order_acquire); }

Board& Segment::board(int rank, BoardKind kind) {
  return reinterpret_cast<Board*>(base_ + boards_at_)[static_cast<size_t>(kind) * geometry_.nranks + rank];
}
void Segment::reserve_boards() { reserve(boards_at_, lines_at_ - boards_at_); }

// By lane first: most communicators use few, and then their lines share pages.
size_t Segment::index(int from, int to, int lane) const {
  return (static_cast<size_t>(lane) * geometry_.nranks + from) * geometry_.nranks + to;
}

// Without this a full memory shows as SIGBUS at the first touch.
void Segment::reserve(size_t offset, size_t bytes) {
  int r;
  do r = fallocate(file_->get(), 0, static_cast<off_t>(offset_ + offset), static_cast<off_t>(bytes));
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

void Segment::reserve_data(int from, int to, int lane, size_t bytes) {
  std::byte* const at = data(from, to, lane);
  reserve(static_cast<size_t>(at - base_), bytes);
  // Its pages at once, so that the first messages don't fault them in one by one; a receiver then gets them by the
  // dozen. An older kernel refuses, and they come when touched.
  const auto page = reinterpret_cast<uintptr_t>(at) & ~(kPage - 1);
  madvise(reinterpret_cast<void*>(page), reinterpret_cast<uintptr_t>(at) + bytes - page, MADV_POPULATE_WRITE);
}
void Segment::release_data(int from, int to, int lane, size_t bytes) {
  punch(static_cast<size_t>(data(from, to, lane) - base_), bytes);
}

std::atomic<uint64_t>* Segment::signals(int from, int to) {
  return reinterpret_cast<std::atomic<uint64_t>*>(base_ + signals_at_) + (static_cast<size_t>(from) * geometry_.nranks + to) * kSignals;
}
void Segment::reserve_signal(int from, int to, size_t index) {
  const auto at = static_cast<size_t>(reinterpret_cast<std::byte*>(signals(from, to) + index) - base_);
  reserve(at / kPage * kPage, kPage);
}

size_t Segment::resident_bytes() const {
  struct stat st{};
  return fstat(file_->get(), &st) == 0 ? static_cast<size_t>(st.st_blocks) * 512 : 0;
}

ShmTransport::ShmTransport(std::shared_ptr<Segment> segment, int rank) : segment_(std::move(segment)), rank_(rank) {
  const size_t n = static_cast<size_t>(segment_->geometry().nranks) * segment_->geometry().lanes;
  senders_.resize(n);
  receivers_.resize(n);
}

SlotSender& ShmTransport::sender(int peer, int lane, size_t largest) {
  Sender& s = senders_[static_cast<size_t>(peer) * lanes() + lane];
  if (!s.end) {
    s.end = std::make_unique<SlotSender>(segment_->lines(rank_, peer, lane), segment_->data(rank_, peer, lane), segment_->slot_bytes(lane),
                                         &segment_->control(peer).doorbell, [this, peer, lane](size_t bytes) {
                                           try {
                                             reserve_data(peer, lane, bytes);
                                             return true;
                                           } catch (const Error&) {
                                             return false;
                                           }
                                         });
    lines_ += sizeof(ConnectionLines);
  }
  if (largest > kInlineBytes) reserve_data(peer, lane, ByteRing::extent(largest, segment_->slot_bytes(lane)).bytes);
  return *s.end;
}

void ShmTransport::reserve_data(int peer, int lane, size_t bytes) {
  size_t& reserved = senders_[static_cast<size_t>(peer) * lanes() + lane].data;
  if (bytes <= reserved) return;
  segment_->reserve_data(rank_, peer, lane, bytes);
  data_ += bytes - reserved;
  reserved = bytes;
}

void ShmTransport::release_data() {
  for (size_t i = 0; i < senders_.size(); ++i)
    if (senders_[i].data) segment_->release_data(rank_, static_cast<int>(i) / lanes(), static_cast<int>(i) % lanes(), senders_[i].data);
}

void ShmTransport::reserve_data() {
  try {
    for (size_t i = 0; i < senders_.size(); ++i)
      if (senders_[i].data) segment_->reserve_data(rank_, static_cast<int>(i) / lanes(), static_cast<int>(i) % lanes(), senders_[i].data);
  } catch (...) {
    release_data();
    throw;
  }
}

SlotReceiver& ShmTransport::receiver(int peer, int lane) {
  auto& r = receivers_[static_cast<size_t>(peer) * lanes() + lane];
  if (!r)
    r = std::make_unique<SlotReceiver>(segment_->lines(peer, rank_, lane), segment_->data(peer, rank_, lane), segment_->slot_bytes(lane),
                                       &segment_->control(peer).doorbell);
  return *r;
}

}  // namespace muster
