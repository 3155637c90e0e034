// A descriptor that processes of this host take when they need it: this process's helper thread hands it out,
// whatever its own threads are doing. Who knows the ticket may have it.
#pragma once

#include <memory>
#include <string>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/crypto.h"

namespace muster {

// Plain bytes, for those only that may have the descriptor.
struct DescriptorTicket {
  PublicId socket{};  // of the helper thread
  Key key{};
  uint64_t token = 0;
};

class DescriptorOffer {
 public:
  // Throws system_error where this process can't listen.
  explicit DescriptorOffer(Fd descriptor);
  ~DescriptorOffer();  // from then on nobody gets it
  DescriptorOffer(const DescriptorOffer&) = delete;
  DescriptorOffer& operator=(const DescriptorOffer&) = delete;
  const DescriptorTicket& ticket() const { return ticket_; }

 private:
  const Fd descriptor_;
  DescriptorTicket ticket_;
};

// Any thread. Throws system_error that says why it can't be had: other network namespaces, too many open files, the
// offer or its process have ended. `whom`: who offers it, for messages.
Fd take_descriptor(const DescriptorTicket& ticket, const std::string& whom, Deadline deadline);

}  // namespace muster
