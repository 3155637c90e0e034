// The model as JSON and back.
#include "topology/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/cluster_file.h"
#include "topology/host_description.h"
#include "topology/read.h"

namespace muster::topology {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& text) {
  try {
    read_json(text, "t.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::invalid_argument);
    return e.what();
  }
  return "accepted";
}

// Every member of every structure is something that isn't its default.
Cluster everything() {
  Machine m;
  m.name = "host \"a\"\n\xc3\xa4";
  m.host_hash = 0xfedcba9876543210;
  const int numa = m.add({.kind = Kind::numa,
                          .name = "NUMA3",
                          .detail = Numa{.os_index = 3,
                                         .package = 1,
                                         .cpus = {0, 2, 5},
                                         .memory_bytes = UINT64_MAX,
                                         .arch = CpuArch::x86_64,
                                         .vendor = "AuthenticAMD",
                                         .family = 175,
                                         .model = 1,
                                         .allowed = false}});
  const int bridge = m.add({.kind = Kind::host_bridge, .name = "bridge", .parent = numa, .made_up = true});
  const Pci pci{*PciAddress::parse("abcd1234:1f:1e.7"), 0x060400, 0x1000, 0xc010, 0x10b5, 0x8764, 2.5, 16};
  const int sw = m.add({.kind = Kind::pci_switch, .name = "switch", .parent = bridge, .pci = pci});
  const int gpu = m.add({.kind = Kind::gpu,
                         .name = "GPU7",
                         .parent = sw,
                         .pci = pci,
                         .detail = Gpu{.index = 7,
                                       .sm = 90,
                                       .gcn = 942,
                                       .model = "NVIDIA H100",
                                       .uuid = "GPU-1",
                                       .rank = 3,
                                       .gpudirect = Answer3::no,
                                       .memory_numa = 18},
                         .hidden = true});
  const int nvs = m.add({.kind = Kind::nvswitch, .name = "NVSwitch", .detail = NvSwitch{4}});
  const int nic = m.add({.kind = Kind::nic, .name = "card", .parent = sw, .pci = pci, .detail = Nic{"0x1"}});
  const int port = m.add({.kind = Kind::port,
                          .name = "mlx5_0",
                          .parent = nic,
                          .detail = Port{.device = "mlx5_0",
                                         .number = 2,
                                         .index = 5,
                                         .network = Network::roce,
                                         .gbit_per_s = 0.1,
                                         .latency_us = 1.0 / 3,
                                         .guid = "0x2",
                                         .interface = "eth4",
                                         .up = Answer3::yes,
                                         .gpudirect = Answer3::yes,
                                         .max_connections = 131072,
                                         .collectives = true}});
  m.link({gpu, nvs, LinkKind::nvlink, 18, {370.8, Source::table}, 0.6});
  m.link({nic, port, LinkKind::network, 1, {12.5, Source::measured}, 1e-3});
  m.link({gpu, numa, LinkKind::c2c, 2, {1.0 / 3, Source::read}, 0});
  m.findings = {{Severity::error, "some-id", "GPU7", "text", "remedy"}, {Severity::note, "", "", "", ""}};
  complete(m);
  Cluster c;
  c.name = "c";
  c.shapes = {std::make_shared<const Machine>(m), std::make_shared<const Machine>(*ready_host("dgx-1v"))};
  c.hosts = {{1, 3, "x"}, {0, 1, "y"}, {1, 1, ""}};
  c.fabric = {Network::efa, true, 32, 1.5, 400, 0.3, 18, Source::measured};
  c.findings = {{Severity::warning, "w", "fabric", "t", "r"}};
  return c;
}

TEST(TopologyJson, RoundTripIsExact) {
  const Cluster c = everything();
  const std::string text = write_json(c);
  EXPECT_EQ(recognise(text), Format::json);
  const Cluster again = read_topology(text, "t.json");
  EXPECT_EQ(write_json(again), text);
  const Machine &a = *c.shapes[0], &b = *again.shapes[0];
  EXPECT_EQ(b.name, a.name);
  EXPECT_EQ(b.host_hash, a.host_hash);
  ASSERT_EQ(b.nodes.size(), a.nodes.size());
  ASSERT_EQ(b.links.size(), a.links.size());
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(b.nodes[i].name, a.nodes[i].name);
    EXPECT_EQ(b.nodes[i].kind, a.nodes[i].kind);
    EXPECT_EQ(b.nodes[i].parent, a.nodes[i].parent);
    EXPECT_EQ(b.nodes[i].hidden, a.nodes[i].hidden);
    EXPECT_EQ(b.nodes[i].made_up, a.nodes[i].made_up);
    EXPECT_EQ(b.nodes[i].pci.has_value(), a.nodes[i].pci.has_value());
  }
  for (size_t i = 0; i < a.links.size(); ++i) {
    EXPECT_EQ(b.links[i].kind, a.links[i].kind);
    EXPECT_EQ(b.links[i].count, a.links[i].count);
    EXPECT_EQ(b.links[i].rate.gb_per_s, a.links[i].rate.gb_per_s);
    EXPECT_EQ(b.links[i].rate.source, a.links[i].rate.source);
    EXPECT_EQ(b.links[i].latency_us, a.links[i].latency_us);
  }
  const Pci &p = *a[a.find("switch")].pci, &q = *b[b.find("switch")].pci;
  EXPECT_EQ(q.address, p.address);
  EXPECT_EQ(q.class_code, p.class_code);
  EXPECT_EQ(q.vendor, p.vendor);
  EXPECT_EQ(q.device, p.device);
  EXPECT_EQ(q.subsystem_vendor, p.subsystem_vendor);
  EXPECT_EQ(q.subsystem_device, p.subsystem_device);
  EXPECT_EQ(q.gigatransfers, p.gigatransfers);
  EXPECT_EQ(q.lanes, p.lanes);
  const Numa &n = a.numa(0), &o = b.numa(0);
  EXPECT_EQ(o.os_index, n.os_index);
  EXPECT_EQ(o.package, n.package);
  EXPECT_EQ(o.cpus, n.cpus);
  EXPECT_EQ(o.memory_bytes, n.memory_bytes);
  EXPECT_EQ(o.arch, n.arch);
  EXPECT_EQ(o.vendor, n.vendor);
  EXPECT_EQ(o.family, n.family);
  EXPECT_EQ(o.model, n.model);
  EXPECT_EQ(o.allowed, n.allowed);
  const Gpu &g = a.gpu(a.find("GPU7")), &h = b.gpu(b.find("GPU7"));
  EXPECT_EQ(h.index, g.index);
  EXPECT_EQ(h.sm, g.sm);
  EXPECT_EQ(h.gcn, g.gcn);
  EXPECT_EQ(h.model, g.model);
  EXPECT_EQ(h.uuid, g.uuid);
  EXPECT_EQ(h.rank, g.rank);
  EXPECT_EQ(h.gpudirect, g.gpudirect);
  EXPECT_EQ(h.memory_numa, g.memory_numa);
  const Port &r = a.port(a.find("mlx5_0")), &s = b.port(b.find("mlx5_0"));
  EXPECT_EQ(s.device, r.device);
  EXPECT_EQ(s.number, r.number);
  EXPECT_EQ(s.index, r.index);
  EXPECT_EQ(s.network, r.network);
  EXPECT_EQ(s.gbit_per_s, r.gbit_per_s);
  EXPECT_EQ(s.latency_us, r.latency_us);
  EXPECT_EQ(s.guid, r.guid);
  EXPECT_EQ(s.interface, r.interface);
  EXPECT_EQ(s.up, r.up);
  EXPECT_EQ(s.gpudirect, r.gpudirect);
  EXPECT_EQ(s.max_connections, r.max_connections);
  EXPECT_EQ(s.collectives, r.collectives);
  EXPECT_EQ(std::get<NvSwitch>(b[b.find("NVSwitch")].detail).count, 4);
  EXPECT_EQ(b.nic(b.find("card")).guid, "0x1");
  ASSERT_EQ(b.findings.size(), a.findings.size());
  EXPECT_EQ(b.findings[0].severity, Severity::error);
  EXPECT_EQ(b.findings[0].id + b.findings[0].where + b.findings[0].text + b.findings[0].remedy,
            "some-idGPU7textremedy");
  ASSERT_EQ(again.hosts.size(), 3u);
  EXPECT_EQ(again.hosts[0].shape, 1);
  EXPECT_EQ(again.hosts[0].count, 3);
  EXPECT_EQ(again.hosts[0].name, "x");
  EXPECT_EQ(again.fabric.network, Network::efa);
  EXPECT_TRUE(again.fabric.rails);
  EXPECT_EQ(again.fabric.hosts_per_leaf, 32);
  EXPECT_EQ(again.fabric.oversubscription, 1.5);
  EXPECT_EQ(again.fabric.gbit_per_s, 400);
  EXPECT_EQ(again.fabric.latency_us, 0.3);
  EXPECT_EQ(again.fabric.hosts_per_nvlink_domain, 18);
  EXPECT_EQ(again.fabric.source, Source::measured);
  ASSERT_EQ(again.findings.size(), 1u);
  EXPECT_EQ(again.findings[0].id, "w");
}

TEST(TopologyJson, NamesThatAreNoUtf8AreReplaced) {
  Machine m;
  m.add({.kind = Kind::numa, .name = "\xff\xfe", .detail = Numa{}});
  EXPECT_EQ(read_json(write_json(cluster_of(m)), "t.json").shapes[0]->nodes.size(), 1u);
}

TEST(TopologyJson, SaysWhereItIsWrong) {
  const auto with = [](const std::string& nodes, const std::string& links = "") {
    return "{\"muster_topology\": 1, \"shapes\": [{\n\"nodes\": [" + nodes + "],\n\"links\": [" + links +
           "]}], \"hosts\": [{\"shape\": 0}]}";
  };
  const std::string numa = R"({"name": "N", "kind": "numa"})";
  EXPECT_EQ(refusal(with(numa)), "accepted");
  EXPECT_THAT(refusal("{\"muster_topology\": 2}"),
              HasSubstr("t.json:1:2: 'muster_topology': schema 2 is newer"));
  EXPECT_THAT(refusal("{\"muster_topology\": 1}"), HasSubstr("'shapes' is missing"));
  EXPECT_THAT(refusal(R"({"muster_topology": 1, "shapes": [], "hosts": []})"),
              HasSubstr("at least one host"));
  EXPECT_THAT(refusal(R"({"muster_topology": 1, "shapes": [], "hosts": [{"shape": 0}]})"),
              HasSubstr("0 is not in 0..-1"));
  EXPECT_THAT(refusal(with(numa + "," + numa)), HasSubstr("t.json:2:41: two nodes named \"N\""));
  EXPECT_THAT(refusal(with(R"({"name": "N"})")), HasSubstr("'kind' is missing"));
  EXPECT_THAT(refusal(with(R"({"name": "N", "kind": "disk"})")),
              HasSubstr("\"disk\" is not known; known are numa, host_bridge"));
  EXPECT_THAT(refusal(with(R"({"name": "N", "kind": "numa", "sm": 90})")),
              HasSubstr("'sm': is not known here"));
  EXPECT_THAT(refusal(with(R"({"name": "N", "kind": "numa", "parent": "M"})")),
              HasSubstr("there is no node \"M\""));
  EXPECT_THAT(refusal(with(R"({"name": "N", "kind": "nic", "parent": "N"})")), HasSubstr("is above itself"));
  EXPECT_THAT(
      refusal(with(
          R"({"name": "A", "kind": "nic", "parent": "B"}, {"name": "B", "kind": "nic", "parent": "A"})")),
      HasSubstr("is above itself"));
  EXPECT_THAT(refusal(with(R"({"name": "P", "kind": "port"})")), HasSubstr("a port without 'parent'"));
  EXPECT_THAT(refusal(with(R"({"name": "G", "kind": "gpu", "pci": {"address": "zz"}})")),
              HasSubstr("\"zz\" is no PCI address"));
  EXPECT_THAT(
      refusal(
          with(R"({"name": "G", "kind": "gpu", "pci": {"address": "0000:01:00.0", "class": "0x1000000"}})")),
      HasSubstr("0x1000000 is more than 0xffffff"));
  EXPECT_THAT(refusal(with(numa, R"({"a": "N", "b": "N"})")),
              HasSubstr("t.json:3:11: a link from a node to itself"));
  EXPECT_THAT(refusal(with(numa, R"({"a": "N"})")), HasSubstr("'b' is missing"));
  EXPECT_THAT(refusal(with(numa, R"({"a": "N", "b": "M"})")), HasSubstr("'b': there is no node \"M\""));
}

}  // namespace
}  // namespace muster::topology
