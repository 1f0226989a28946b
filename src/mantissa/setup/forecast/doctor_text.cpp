#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "mantissa/core/base/quantities.h"
#include "mantissa/core/numeric/card.h"
#include "mantissa/setup/forecast/doctor.h"

namespace mantissa::forecast {
namespace {

using nlohmann::json;

std::string format_table(const Costs& costs) {
  const double f32 = costs.of("f32").product;
  std::string text = fmt::format("{:<8}{:<11}{:>15}{:>9}{:>18}  {}\n", "format", "how", "product", "of f32",
                                 "cast from f32", "what happens");
  for (const FormatCost& c : costs.formats) {
    const std::string conversion =
        c.conversion == 0 ? "while packed" : fmt::format("{:.2f} Gvalue/s", c.conversion / 1e9);
    text += fmt::format("{:<8}{:<11}{:>7.0f} GFLOP/s{:>7.2f} ×{:>18}  {}\n", c.support.format,
                        kernels::name(c.support.how), c.product / 1e9, c.product / f32, conversion,
                        c.support.why);
  }
  return text;
}

json format_json(const Costs& costs) {
  const double f32 = costs.of("f32").product;
  json formats = json::array();
  for (const FormatCost& c : costs.formats) {
    formats.push_back({{"format", c.support.format},
                       {"how", kernels::name(c.support.how)},
                       {"unit", c.support.unit},
                       {"why", c.support.why},
                       {"flops_per_second", c.product},
                       {"relative_to_f32", c.product / f32},
                       {"casts_per_second", c.conversion == 0 ? json() : json(c.conversion)}});
  }
  return formats;
}

/// Returns the units that multiply, with their peaks and the share of it that a product reaches.
std::string unit_table(const std::vector<UnitCheck>& units) {
  const double fma = units.front().peak;
  std::size_t width = 12;
  for (const UnitCheck& u : units) width = std::max(width, u.unit->name.size() + 2);
  std::string text = fmt::format("{:<{}}{:<10}{:>15}{:>9}{:>16}{:>9}  {}\n", "unit", width, "", "peak",
                                 "of FMA", "product", "of peak", "factors; why it is used or not");
  for (const UnitCheck& u : units) {
    const std::string peak = u.peak > 0 ? fmt::format("{:.0f} GFLOP/s", u.peak / 1e9) : "–";
    const std::string relative = u.peak > 0 ? fmt::format("{:.2f} ×", u.peak / fma) : "–";
    const std::string product = u.product > 0 ? fmt::format("{:.0f} GFLOP/s", u.product / 1e9) : "–";
    const std::string share =
        u.product > 0 && u.peak > 0 ? fmt::format("{:.0f} %", 100 * u.product / u.peak) : "–";
    text += fmt::format("{:<{}}{:<10}{:>15}{:>9}{:>16}{:>9}  {}; {}\n", u.unit->name, width,
                        !u.present ? "not here"
                        : u.used   ? "used"
                                   : "not used",
                        peak, relative, product, share, u.unit->factors, u.why);
  }
  return text;
}

json unit_json(const std::vector<UnitCheck>& units) {
  const auto rate = [](double flops) { return flops == 0 ? json() : json(flops); };
  json all = json::array();
  for (const UnitCheck& u : units) {
    all.push_back({{"name", u.unit->name},
                   {"present", u.present},
                   {"used", u.used},
                   {"why", u.why},
                   {"factors", u.unit->factors},
                   {"packing", u.unit->packing},
                   {"accumulator", u.unit->accumulator},
                   {"peak_flops_per_second", rate(u.peak)},
                   {"product_flops_per_second", rate(u.product)}});
  }
  return all;
}

/// The source of the rules of all cards.
constexpr std::string_view kCardSource = "Xie et al., MMA-Sim, arXiv:2511.10909";

/// Returns the accelerators whose sums `accumulate` can compute.
std::string card_table() {
  std::string text = fmt::format("{:<15}{:<37}{}\n", "accumulate", "sums of", "factors");
  for (const CardTraits& c : cards())
    text += fmt::format("{:<15}{:<37}{}\n", c.name, c.title, factors_of(c.card));
  return text + fmt::format("rules from {}\n", kCardSource);
}

json card_json() {
  json all = json::array();
  for (const CardTraits& c : cards()) {
    json of_card = json::array();
    for (const Instruction& i : instructions()) {
      if (i.card != c.card) continue;
      of_card.push_back({{"name", i.name},
                         {"factor", name(i.factor)},
                         {"k", i.k},
                         {"group", i.group},
                         {"usual", find_instruction(i.card, i.factor) == &i},
                         {"f16", i.f16}});
    }
    all.push_back({{"name", c.name},
                   {"title", c.title},
                   {"source", kCardSource},
                   {"instructions", std::move(of_card)}});
  }
  return all;
}

/// Returns the processor's extensions, with whether and why each is used.
std::string feature_table(const std::vector<kernels::ProcessorFeature>& features) {
  std::string text;
  for (const kernels::ProcessorFeature& f : features) {
    if (f.present) text += fmt::format("{:<12} {:<9} {}\n", f.name, f.used ? "used" : "not used", f.why);
  }
  return text;
}

json feature_json(const std::vector<kernels::ProcessorFeature>& features) {
  json all = json::array();
  for (const kernels::ProcessorFeature& f : features)
    all.push_back({{"name", f.name}, {"present", f.present}, {"used", f.present && f.used}, {"why", f.why}});
  return all;
}

std::string not_present(const std::vector<kernels::ProcessorFeature>& features) {
  std::vector<std::string_view> names;
  for (const kernels::ProcessorFeature& f : features) {
    if (!f.present) names.push_back(f.name);
  }
  return names.empty() ? "" : fmt::format("not here     {}\n", fmt::join(names, ", "));
}

std::string network_text(const NetworkCheck& network, const std::vector<std::string>& launchers) {
  if (launchers.empty() && network.ranks == 1)
    return "mpi      no launcher detected: runs have one process\n";
  if (network.ranks == 1) {
    return fmt::format("mpi      {}: to measure the network, run mpirun -n 2 mantissa doctor\n",
                       fmt::join(launchers, ", "));
  }
  std::string text = fmt::format(
      "network  {} ranks, {} of them on this machine: a message takes {:.1f} µs, large ones move at {:.2f} GB/s\n"
      "         sum of {:.1f}M gradients of each rank:",
      network.ranks, network.here, network.latency * 1e6, network.bytes_per_second / 1e9,
      static_cast<double>(network.gradients) / 1e6);
  for (const NetworkCheck::Sum& sum : network.sums)
    text += fmt::format("{} {} {:.1f} ms", &sum == &network.sums.front() ? "" : ",", name(sum.format),
                        sum.seconds * 1e3);
  return text + "\n";
}

json network_json(const NetworkCheck& network) {
  if (network.ranks == 1) return nullptr;
  json sums = json::array();
  for (const NetworkCheck::Sum& sum : network.sums)
    sums.push_back({{"reduce", name(sum.format)}, {"seconds", sum.seconds}, {"sent_bytes", sum.bytes}});
  return {{"ranks", network.ranks},
          {"ranks_here", network.here},
          {"latency_seconds", network.latency},
          {"bytes_per_second", network.bytes_per_second},
          {"gradients", network.gradients},
          {"sums", std::move(sums)}};
}

json seen_json(const std::vector<std::string>& seen, bool used) {
  return seen.empty() ? json() : json{{"seen", seen}, {"used", used}};
}

}  // namespace

std::string to_text(const Checkup& m) {
  std::string text = fmt::format(
      "cpu      {}\ncores    {} ({} used)\nsimd     {}\nmemory   {}, {} available\n"
      "peak     {:.0f} GFLOP/s f32 (fused multiply-add, measured)\n"
      "stream   {:.1f} GB/s (measured)\n",
      m.cpu, m.cores, m.threads, m.simd, human_bytes(static_cast<double>(m.memory_bytes)),
      human_bytes(static_cast<double>(m.available_memory_bytes)), m.flops_per_second / 1e9,
      m.bytes_per_second / 1e9);
  text += m.accelerators.empty() ? "gpu      not detected; this build runs on the CPU\n"
                                 : fmt::format("gpu      {}: not used, this build runs on the CPU\n",
                                               fmt::join(m.accelerators, ", "));
  text += network_text(m.network, m.launchers);
  text += "\n" + format_table(m.costs) + "\n" + unit_table(m.units) + "\n" + card_table() + "\n" +
          feature_table(m.features) + not_present(m.features);
  text += fmt::format(
      "\nupdate   AdamW in f32 {:.2f} Gvalue/s, in bf16 with stochastic rounding {:.2f} Gvalue/s\n",
      m.costs.update.f32 / 1e9, m.costs.update.bf16_stochastic / 1e9);
  return text + fmt::format("preset   {}: {}\n", m.preset, m.why);
}

std::string to_json(const Checkup& m) {
  return json{{"cpu", m.cpu},
              {"cores", m.cores},
              {"threads", m.threads},
              {"simd", m.simd},
              {"memory_bytes", m.memory_bytes},
              {"available_memory_bytes", m.available_memory_bytes},
              {"flops_per_second", m.flops_per_second},
              {"bytes_per_second", m.bytes_per_second},
              {"gpu", seen_json(m.accelerators, false)},
              {"mpi", seen_json(m.launchers, m.network.ranks > 1)},
              {"network", network_json(m.network)},
              {"features", feature_json(m.features)},
              {"units", unit_json(m.units)},
              {"cards", card_json()},
              {"formats", format_json(m.costs)},
              {"updates_per_second",
               {{"f32", m.costs.update.f32}, {"bf16-stochastic", m.costs.update.bf16_stochastic}}},
              {"preset", m.preset},
              {"why", m.why}}
      .dump(2);
}

}  // namespace mantissa::forecast
