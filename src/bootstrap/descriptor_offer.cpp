#include "bootstrap/descriptor_offer.h"

#include <cerrno>

#include "base/error.h"
#include "bootstrap/fd_message.h"
#include "bootstrap/process_fd.h"
#include "bootstrap/service.h"

namespace muster {
namespace {

// Of no communicator, so without its id.
EndpointName offer_name(const DescriptorTicket& t) { return {Purpose::descriptors, {}, t.token}; }

}  // namespace

DescriptorOffer::DescriptorOffer(Fd descriptor) : descriptor_(std::move(descriptor)) {
  Service& service = Service::get();
  ticket_ = {service.listen_local().bytes, random_value<Key>(), random_value<uint64_t>()};
  service.loop().call([&] {
    service.open(offer_name(ticket_), ticket_.key, [fd = descriptor_.get()](Arrival a) {
      // A byte into an empty socket buffer: it fits or the connection is broken, which its other end sees.
      (void)send_fds(a.fd.get(), {&fd, 1}, Deadline::after(Deadline::Nanoseconds(0)));
    });
  });
}

DescriptorOffer::~DescriptorOffer() {
  if (is_forked_child()) return;  // the helper thread stayed with the parent
  if (Service* const service = Service::existing()) service->loop().call([&] { service->close(offer_name(ticket_)); });
}

Fd take_descriptor(const DescriptorTicket& ticket, const std::string& whom, Deadline deadline) {
  const Connection to_owner =
      dial(Address::local(ticket.socket), {}, {Purpose::descriptors, {}, ticket.key, ticket.token, 0}, deadline,
           {whom, "Are both in one network namespace of one host?", 3, Result::system_error});
  std::vector<Fd> got;
  switch (recv_fds(to_owner.fd.get(), got, deadline)) {
    case IoStatus::done:
      break;
    case IoStatus::expired:
      fail(Result::system_error, "{} did not hand over a descriptor in time", whom);
    case IoStatus::closed:
      fail(Result::system_error, "{} closed its connection before it handed over a descriptor", whom);
    case IoStatus::failed:
      fail(Result::system_error, "a descriptor of {} can't be taken: {}. Raise the limit of open files (ulimit -n) if it is too low", whom,
           describe_errno(errno));
  }
  return std::move(got.front());
}

}  // namespace muster
