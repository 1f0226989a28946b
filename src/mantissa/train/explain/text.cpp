#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/engine/graph/inserted.h"
#include "mantissa/engine/optim/optimizer.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/config/schedule.h"
#include "mantissa/train/explain/explained.h"
#include "mantissa/train/explain/memory.h"

namespace mantissa::explain {
namespace {

std::string bytes_text(std::size_t bytes) {
  return human_bytes(static_cast<double>(bytes));
}

/// Returns for example "f32 native, bf16 converted".
std::string formats_text(const Here& here) {
  std::vector<std::string> all;
  for (const auto& [format, support] : here.formats)
    all.push_back(fmt::format("{} {}", format, kernels::name(support.how)));
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Returns for example "f16 native, bf16 NO (in f32)".
std::string formats_text(const There& there) {
  std::vector<std::string> all;
  for (const forecast::TargetFormat& f : there.needed) {
    all.push_back(f.native                ? fmt::format("{} native", f.format)
                  : f.computed_in.empty() ? fmt::format("{} NO", f.format)
                                          : fmt::format("{} NO (in {})", f.format, f.computed_in));
  }
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Returns a line for each unit that computes products of the plan.
std::string unit_lines(const Here& here) {
  std::string text;
  std::size_t width = 11;
  for (const UnitUse& u : here.units) width = std::max(width, u.unit->name.size() + 2);
  for (const UnitUse& u : here.units) {
    const std::string speed =
        u.relative_to_fma == 1 ? "" : fmt::format(": {:.1f} × FMA here", u.relative_to_fma);
    text += fmt::format("{:<8}{:<{}}{}{}\n", text.empty() ? "units" : "", u.unit->name, width,
                        fmt::join(u.uses, "; "), speed);
  }
  return text;
}

/// Returns the lines of this machine ("here") and each target: how they compute the formats of the plan.
std::string machine_lines(const Explained& e) {
  std::string text = fmt::format("here    {} · {}, {}\n", formats_text(e.here), e.here.simd,
                                 counted(e.here.threads, "thread")) +
                     unit_lines(e.here);
  for (const There& there : e.targets) {
    text += fmt::format("target  {} ({}): {}\n", there.target.name, there.target.description,
                        formats_text(there));
  }
  return text;
}

std::string seconds_text(double seconds, const char* of) {
  return seconds == 0 ? fmt::format("unknown: the machine cannot multiply a format of the plan")
                      : fmt::format("about {} a {}", human_seconds(seconds), of);
}

/// Returns for example "80 GB", as in data sheets.
std::string memory_text(const forecast::Target& target) {
  return fmt::format("{:.4g} GB", target.memory_bytes / 1e9);
}

std::string memory_line(const forecast::MemoryForecast& m) {
  std::string line;
  for (const auto& [name, bytes] : purposes(m)) {
    if (bytes > 0)
      line += fmt::format("{}{} {:.1f}", line.empty() ? "" : " + ", name, static_cast<double>(bytes) / 1e6);
  }
  return fmt::format("{} = {:.1f} MB", line, static_cast<double>(m.peak()) / 1e6);
}

/// Returns what does not fit on this machine: "; 8 do not fit", or the largest stage with its need.
std::string misfit_text(const Explained& e) {
  const Training& t = *e.training;
  const auto peak = [](const StagePlan& s) { return s.memory.peak(); };
  const auto largest = std::ranges::max_element(t.stages, {}, peak);
  if (largest == t.stages.end() || peak(*largest) <= e.here.memory_bytes)
    return fmt::format("; {} do not fit", t.stage_config.batch.micro_batch_size);
  return fmt::format("; stage {} does not fit: it needs {}, {} more than available",
                     largest - t.stages.begin() + 1, bytes_text(peak(*largest)),
                     bytes_text(peak(*largest) - e.here.memory_bytes));
}

/// Returns how many sequences fit on this machine.
std::string fits_text(const Explained& e) {
  const Training& t = *e.training;
  const config::BatchSection& batch = t.stage_config.batch;
  const std::string memory = bytes_text(e.here.memory_bytes) + " here";
  if (t.largest_micro_batch_size == 0) {
    const std::string at_once = batch.leaf == 1 ? "one sequence" : counted(batch.leaf, "sequence");
    return fmt::format("{}: no, not even {} at a time: that needs {}, {} more than available", memory,
                       at_once, bytes_text(t.least_bytes), bytes_text(t.least_bytes - e.here.memory_bytes));
  }
  return fmt::format("{}: batch.micro_batch_size ≤ {} of {}{}", memory, t.largest_micro_batch_size,
                     t.stages.empty() ? "this batch" : fmt::format("the batch of stage {}", t.stage + 1),
                     e.fits ? "" : misfit_text(e));
}

/// Returns "no, not even one sequence at a time: …".
std::string refusal_text(std::size_t least, std::size_t usable) {
  return fmt::format("no, not even one sequence at a time: that needs {}, {} more than available",
                     bytes_text(least), bytes_text(least - usable));
}

/// Returns how many sequences fit on a target. With stages, adds a line for each.
std::string fits_text(const There& there) {
  const std::string where = fmt::format("{} on {}", memory_text(there.target), there.target.name);
  if (there.stages.empty()) {
    if (!there.fits) return fmt::format("{}: {}", where, refusal_text(there.least_bytes, there.usable_bytes));
    return fmt::format("{}: batch.micro_batch_size ≤ {} of this batch; {} in total", where,
                       there.largest_micro_batch_size, counted(there.sequences_that_fit, "sequence"));
  }
  std::string text = fmt::format("{}: {}, by stage", where, there.fits ? "yes" : "no");
  for (std::size_t s = 0; s < there.stages.size(); ++s) {
    const StageThere& stage = there.stages[s];
    const std::string fits =
        stage.fits ? fmt::format("batch.micro_batch_size ≤ {} of its batch{}; {} in total",
                                 stage.largest_micro_batch_size,
                                 stage.peak_bytes <= there.usable_bytes ? "" : ", less than configured",
                                 counted(stage.sequences_that_fit, "sequence"))
                   : refusal_text(stage.least_bytes, there.usable_bytes);
    text += fmt::format("\n          stage {}, {}: {}", s + 1, bytes_text(stage.peak_bytes), fits);
  }
  return text;
}

std::string time_text(const Explained& e) {
  if (!e.fits) return "unknown: the plan does not fit";
  const std::int64_t steps = e.training->config.run.steps;
  std::string text = fmt::format("about {} per step here", human_seconds(e.seconds));
  double total = e.seconds * static_cast<double>(steps);
  if (!e.training->stages.empty()) {
    text += fmt::format(" in stage {}", e.training->stage + 1);
    total = 0;
    for (const StagePlan& s : e.training->stages)
      total += s.seconds * static_cast<double>(s.last - s.first + 1);
  }
  if (steps > 1) text += fmt::format(", {} in total", human_seconds(total));
  if (e.rollout_seconds > 0) {
    text += fmt::format("; of a step {} rollout, {} training", human_seconds(e.rollout_seconds),
                        human_seconds(e.seconds - e.rollout_seconds));
  }
  return text;
}

std::string time_text(const There& there, const Training& t) {
  const std::string& name = there.target.name;
  if (!there.fits) {
    return fmt::format("unknown on {}: {} does not fit", name,
                       there.stages.empty() ? "the plan" : fmt::format("stage {}", there.limiting_stage + 1));
  }
  const std::string of = there.stages.empty() ? "" : fmt::format(" in stage {}", t.stage + 1);
  std::string text = fmt::format("{} on {}{}", seconds_text(there.seconds, "step"), name, of);
  if (there.total_seconds > 0) {
    text += fmt::format(", {} in total (by stated rates, within a factor of 2)",
                        human_seconds(there.total_seconds));
  }
  return text;
}

/// Returns the base of the rotary angles if the config sets it by length.
std::string theta_text(const Training& t) {
  const auto own = t.config.model.fields.find("rope_theta");
  const bool named = own != t.config.model.fields.end() && own->is_string();
  return named || !t.stages.empty() ? fmt::format(" · rope_theta {:g}", t.rope_theta) : "";
}

/// Returns a table of the stages, or "" without stages.
std::string stages_text(const Training& t) {
  if (t.stages.empty()) return "";
  std::string text = fmt::format("stages  {:>9}  {:>7}  {:>10}  {:>5}  {:>8}  {:>9}  {:>9}\n", "steps",
                                 "tokens", "rope_theta", "batch", "lr", "memory", "a step");
  for (const StagePlan& s : t.stages) {
    text += fmt::format("        {:>9}  {:>7}  {:>10}  {:>5}  {:>8.2g}  {:>9}  {:>9}\n",
                        fmt::format("{}-{}", s.first, s.last), s.sequence_length,
                        s.rope_theta == 0 ? "none" : fmt::format("{:g}", s.rope_theta),
                        fmt::format("{}×{}", s.global_batch_size / s.micro_batch_size, s.micro_batch_size),
                        s.lr, bytes_text(s.memory.peak()), human_seconds(s.seconds));
  }
  return text;
}

std::string training_head(const Explained& e) {
  const config::RunConfig& c = e.training->stage_config;
  const double micro_batches =
      static_cast<double>(c.batch.global_batch_size) / static_cast<double>(c.batch.micro_batch_size);
  std::string text =
      fmt::format("{} {} · T={}{} · batch {} = {:.0f}×{} · {}\n", e.model_type, parameters_text(e.parameters),
                  c.data.sequence_length, theta_text(*e.training), c.batch.global_batch_size, micro_batches,
                  c.batch.micro_batch_size, optim::find_optimizer(c.optimizer.name).title);
  if (const auto& a = e.training->adapter) {
    const std::string ranks = a->smallest_rank == a->largest_rank
                                  ? fmt::format("{}", a->largest_rank)
                                  : fmt::format("{} to {}", a->smallest_rank, a->largest_rank);
    const std::string what = a->kind == "state"
                                 ? fmt::format("of the initial states of {} recurrences", a->layers)
                                 : fmt::format("{} of rank {} on {} of {} linear layers", a->kind, ranks,
                                               a->layers, a->all_layers);
    text += fmt::format("adapter {}: {} weights trained ({}), {} frozen ({}{})\n", what,
                        parameters_text(a->parameters), bytes_text(a->trained_bytes),
                        parameters_text(e.parameters), bytes_text(a->frozen_bytes),
                        a->base.empty() ? "" : ", linear layers in " + a->base);
  }
  if (e.training->stages.empty()) text += fmt::format("lr      {}\n", config::schedule_text(c));
  text += fmt::format("policy  {}\n        {}\n", e.title, e.line);
  if (const std::vector<std::int64_t> changes = c.policy.changes(); !changes.empty()) {
    text += fmt::format("steps   rules start or end at step {}; this is the plan of step 0\n",
                        fmt::join(changes, ", "));
  }
  return text + machine_lines(e);
}

/// Returns a line for each kind of step that no rule matches, or "".
std::string inserted_text(const std::vector<plan::PlanRow>& rows) {
  std::set<std::string> names;
  for (const plan::PlanRow& row : rows) {
    if (!graph::inserted_step(row.op).empty()) names.insert(row.op);
  }
  std::string text;
  for (const std::string& name : names) {
    text += fmt::format("{}{:<8}  {}; its rule decides\n", text.empty() ? "\n" : "", name,
                        graph::inserted_step(name));
  }
  return text;
}

/// Returns ", rounded …" for sums over shards that do not round to nearest, or "".
std::string_view shard_rounding_text(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest:
      return "";
    case Rounding::toward_zero:
      return ", rounded toward zero";
    case Rounding::stochastic:
      return ", rounded stochastically, keyed by seed, step, name, shards and element";
  }
  return "";
}

std::string training_tables(const Explained& e) {
  const Training& t = *e.training;
  std::string text = fmt::format("\nforward\n{}", plan::plan_table(e.rows, graph::Phase::forward));
  text += fmt::format("\nbackward\n{}", plan::plan_table(e.rows, graph::Phase::backward));
  if (t.config.batch.recompute != "none") {
    text += fmt::format("\nrecomputed in the backward pass\n{}",
                        plan::plan_table(e.rows, graph::Phase::backward, true));
  }
  text += fmt::format("\nupdate\n{}", plan::plan_table(e.rows, graph::Phase::finish));
  text += inserted_text(e.rows);
  const std::int64_t leaves = t.shards * t.sequence_shards;
  if (leaves > 1) {
    text += fmt::format("\nshards  {} of {}{}; gradients are added by a tree in {}{}\n", t.shards,
                        counted(t.config.batch.global_batch_size / t.shards, "sequence"),
                        t.sequence_shards > 1 ? fmt::format(", each in {} parts", t.sequence_shards) : "",
                        name(t.reduce), shard_rounding_text(t.reduce_rounding));
    text += fmt::format("wire    each of {} ranks would send {} of gradients a step\n", leaves,
                        human_bytes(static_cast<double>(t.sent_bytes)));
  }
  if (t.sequence_shards > 1) {
    text += fmt::format(
        "rows    {} ranks share a row of {} tokens, with at most {} each; memory and time are those of one\n",
        t.sequence_shards, t.stage_config.data.sequence_length, config::tokens_per_rank(t.stage_config));
  }
  return text;
}

/// Returns the lines about the ranks that share the run: memory, bytes and time of a step.
std::string ranks_text(const forecast::RanksForecast& f) {
  const forecast::RankForecast& most = f.largest();
  const auto sent = [&](auto bytes) {
    double all = 0;
    for (const forecast::RankForecast& r : f.of) all = std::max(all, bytes(r.sent));
    return human_bytes(all);
  };
  std::string text =
      fmt::format("ranks   {} on {}, zero = {}: at most {} each, of rank {}\n", f.ranks,
                  counted(f.nodes, "machine"), f.stage, bytes_text(most.memory.peak()), most.rank);
  text += fmt::format("        {}\n", memory_line(most.memory));
  std::string of_rows;
  if (most.sent.keys > 0)
    of_rows +=
        fmt::format(", {} of keys and values", sent([](const forecast::SentBytes& s) { return s.keys; }));
  if (most.sent.states > 0)
    of_rows += fmt::format(", {} of states", sent([](const forecast::SentBytes& s) { return s.states; }));
  text += fmt::format(
      "        a rank sends at most {} of gradients{}, {} of weights after the update, {} for steps{}\n",
      sent([](const forecast::SentBytes& s) { return s.gradients; }), f.streams ? " while it computes" : "",
      sent([](const forecast::SentBytes& s) { return s.weights; }),
      sent([](const forecast::SentBytes& s) { return s.gathered; }), of_rows);
  if (!f.seconds) {
    return text + fmt::format("        {} computing a step; for the time of transfers, --network FILE\n",
                              human_seconds(f.computing));
  }
  return text +
         fmt::format(
             "        about {} a step: {} computing and {} waiting for transfers; of {} of transfers, {:.0f} % are hidden\n",
             human_seconds(*f.seconds), human_seconds(f.computing), human_seconds(*f.waiting),
             human_seconds(*f.sending), 100 * f.hidden().value_or(0));
}

/// Returns the lines about memory, the batch that fits, the dependence of bits, and time.
std::string training_needs(const Explained& e) {
  const Training& t = *e.training;
  std::string text =
      fmt::format("\ncasts left  {} ({})\n", t.casts_left.count, human_bytes(t.casts_left.bytes));
  text += fmt::format("rounds  {}\n", plan::rounding_text(e.roundings));
  if (t.chunked_steps > 0) {
    text += fmt::format("chunks  {} of {} steps run for {} tokens at a time\n", t.chunked_steps, t.steps,
                        t.stage_config.batch.chunk_tokens);
  }
  text += stages_text(t);
  text += fmt::format("memory  {}\n", memory_line(t.memory));
  text += fmt::format("fits    {}\n", fits_text(e));
  for (const There& there : e.targets) text += fmt::format("        {}\n", fits_text(there));
  text += t.exceptions.empty()
              ? "bits    the same for any threads, instruction set, micro_batch_size, and when resumed\n"
              : fmt::format("bits    depend on micro_batch_size: {}\n", fmt::join(t.exceptions, "; "));
  text += fmt::format("time    {}\n", time_text(e));
  for (const There& there : e.targets) text += fmt::format("        {}\n", time_text(there, t));
  if (t.ranks) text += ranks_text(*t.ranks);
  return text;
}

std::string generation_text(const Explained& e) {
  const Generation& g = *e.generation;
  std::string text = fmt::format(
      "{} {} · generation, {} positions\npolicy  {}\n        {}\n{}\n{}\nmemory  weights {} + "
      "cache {} + work {} + tables {} + process {} = {}\n",
      e.model_type, parameters_text(e.parameters), g.positions, e.title, e.line, machine_lines(e),
      plan::plan_table(e.rows, graph::Phase::forward), bytes_text(g.weights), bytes_text(g.cache),
      bytes_text(g.work), bytes_text(g.tables), bytes_text(g.process), bytes_text(e.peak_bytes));
  text += e.fits ? fmt::format("time    about {} per token here\n", human_seconds(e.seconds))
                 : fmt::format("fits    {} here: no, {} more needed\n", bytes_text(e.here.memory_bytes),
                               bytes_text(e.peak_bytes - e.here.memory_bytes));
  for (const There& there : e.targets) {
    text += fmt::format("target  fits {} on {}: {}; {} on {}\n", memory_text(there.target), there.target.name,
                        there.fits ? "yes" : "no", seconds_text(there.seconds, "token"), there.target.name);
  }
  return text;
}

}  // namespace

std::string to_text(const Explained& e) {
  std::string text =
      e.training ? training_head(e) + training_tables(e) + training_needs(e) : generation_text(e);
  for (const std::string& n : e.notes) text += fmt::format("note    {}\n", n);
  for (const std::string& w : e.warnings) text += fmt::format("warning {}\n", w);
  return text;
}

}  // namespace mantissa::explain
