#include "bootstrap/make_id.h"

#include "base/log_options.h"
#include "bootstrap/host.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/resolve.h"
#include "bootstrap/root.h"
#include "bootstrap/service.h"
#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"

namespace muster {

UniqueId make_rooted_id(const Options& options, const Address& others) {
  Service& service = Service::get();
  const std::vector<Source> sources = choose_sources(list_interfaces(), options.text("NCCL_SOCKET_IFNAME"),
                                                     options.text("NCCL_SOCKET_FAMILY"), address_toward(others));
  const Host host = this_host();
  IdContent id;
  id.root = service.listen(sources, options.text("MUSTER_PORT_RANGE")).address;
  id.place = host.place;
  id.pid = host.pid;
  id.host = host.name;
  id.public_id = random_value<PublicId>();
  id.key = random_value<Key>();
  service.loop().call([&] { Root::start(service, id); });
  return encode(id);
}

UniqueId make_comm_id(const Options& options, uint32_t generation) {
  const std::string& text = options.text("NCCL_COMM_ID");
  const Address root = resolve("NCCL_COMM_ID", parse_host_port("NCCL_COMM_ID", text),
                               options.text("NCCL_SOCKET_FAMILY"), Deadline::after(options.seconds("MUSTER_INIT_TIMEOUT")));
  return make_fixed_id(root, text, options.text("MUSTER_JOB_KEY"), generation);
}

UniqueId make_unique_id() {
  const Options options = Options::from_environment();
  start_logging(options, false);
  return options.is_set("NCCL_COMM_ID") ? make_comm_id(options, 0) : make_rooted_id(options);
}

}  // namespace muster
