// An RDMA device of this host that was opened, and what all connections over it share.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transports/verbs/library.h"
#include "transports/verbs/ports.h"
#include "transports/verbs/settings.h"

namespace muster::verbs {

// Memory of its own pages, which children of fork() don't get: they would take the pages that an adapter writes to.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  size_t bytes_;
};

class Adapter {
 public:
  // Every device that can be opened; those that can't are described in `problems`.
  static std::vector<std::unique_ptr<Adapter>> open_all(const std::shared_ptr<const Library>& library, std::string& problems);

  const std::string& name() const { return name_; }
  const Library& library() const { return *library_; }
  ibv_context* context() const { return context_.get(); }
  std::vector<Port> ports() const;  // all, also those that are down

  // Makes what connections need. Throws system_error where a resource is short, naming it.
  void start(const Settings& settings);
  ibv_pd* domain() const { return domain_.get(); }
  ibv_cq* received() const { return received_.get(); }  // completions of the shared receive queue
  ibv_cq* sent() const { return sent_.get(); }
  ibv_srq* receives() const { return receives_.get(); }
  uint32_t most_sent() const { return most_sent_; }  // completions that `sent` has room for
  int event_fd() const { return channel_->fd; }      // readable when a completion has come since the last arm()
  void arm();
  bool has_endless_retries() const { return endless_retries_; }

  // Receives of the shared queue: `slot` is a completion's wr_id.
  const std::byte* message(uint64_t slot) const { return messages_->data() + slot * kMessageBytes; }
  void receive_again(uint64_t slot);

  // Makes memory known to the device, which may read it and do what `use` says. This is where memory of GPUs would be
  // registered by a descriptor of theirs. Throws system_error, telling the limit on locked memory where that is the cause.
  enum class Use : uint8_t { send, receive, be_written_by_peers };
  Owned<ibv_mr> register_memory(std::span<const std::byte> memory, Use use) const;

 private:
  static constexpr size_t kMessageBytes = 128;
  Adapter(std::shared_ptr<const Library> library, std::string name, Owned<ibv_context> context);

  std::shared_ptr<const Library> library_;
  std::string name_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> domain_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> received_, sent_;
  Owned<ibv_srq> receives_;
  std::unique_ptr<Pages> messages_;
  Owned<ibv_mr> messages_key_;
  uint32_t most_sent_ = 0;
  bool relaxed_ordering_ = false;
  bool endless_retries_ = false;
};

}  // namespace muster::verbs
