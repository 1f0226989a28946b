#include "mantissa/train/steps/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/runtime/nonfinite.h"
#include "mantissa/engine/runtime/session.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/programs/evaluation.h"
#include "mantissa/train/steps/trace_formats.h"
#include "mantissa/train/steps/trace_ids.h"
#include "mantissa/train/steps/trace_place.h"

namespace mantissa::train {
namespace {

/// Tensors collected row by row.
class Collector {
 public:
  Collector(Scalar arithmetic, const runtime::Device& device)
      : dtype_(io::dtype_of(arithmetic)), device_(device) {}

  /// Appends `count` elements to the tensor `name`, whose format is `format`.
  void append(const std::string& name, Scalar format, const void* data, Scalar type, std::int64_t count) {
    TracedTensor& t = find(name);
    t.dtype = io::dtype_of(format);
    const std::size_t old = t.bytes.size();
    t.bytes.resize(old + static_cast<std::size_t>(count) * mantissa::bytes_of(format));
    kernels::cast(device_.host(), count, data, type, t.bytes.data() + old, format);
  }
  void set_shape(const std::string& name, std::vector<std::int64_t> shape) {
    find(name).shape = std::move(shape);
  }
  std::vector<TracedTensor> take() { return std::move(tensors_); }

 private:
  TracedTensor& find(const std::string& name) {
    const auto [place, added] = places_.try_emplace(name, tensors_.size());
    if (added) tensors_.push_back({.name = name, .dtype = dtype_});
    return tensors_[place->second];
  }

  io::Dtype dtype_;  // of tensors without elements
  const runtime::Device& device_;
  std::vector<TracedTensor> tensors_;
  std::unordered_map<std::string, std::size_t> places_;  // in tensors_, by name
};

void write(const std::filesystem::path& path, const std::vector<TracedTensor>& tensors,
           const precision::Policy& policy, const plan::Program& program) {
  std::vector<io::TensorToWrite> out;
  for (const TracedTensor& t : tensors) {
    io::TensorToWrite& to = out.emplace_back();
    to.name = t.name;
    to.dtype = t.dtype;
    to.shape = t.shape;
    to.bytes = t.bytes;
  }
  io::write_safetensors(disk::given(path, true), out,
                        {{"mantissa.policy", policy.line()}, {kFormatsKey, formats_of(program)}});
}

class Tracer {
 public:
  Tracer(const TraceOptions& options, const runtime::Device& device)
      : options_(options), device_(device), source_(options.model) {
    if (options.policy.loss_scale().kind != precision::LossScale::Kind::none)
      scale_ = options.policy.loss_scale().value;
    ids_ = options.tokens.empty() ? trace_ids(options.ids, options.labels, source_.config.vocab_size)
                                  : trace_ids(options.tokens, source_.config.vocab_size);
    for (std::int64_t r = 0; r < ids_.rows; ++r) {
      for (std::int64_t t = 1; t < ids_.length; ++t)
        predicted_ += ids_.labels[at(r, t)] != kIgnoredLabel ? 1 : 0;
    }
  }

  TraceSummary run() {
    const auto program = programs::compile_trace(
        source_.config, options_.policy, ids_.length,
        {options_.grads, !options_.values.empty(), options_.fold, options_.fuse}, device_);
    if (options_.check) options_.check(*program);
    name_points(*program);
    runtime::Session session = weights::open_session(program, source_, device_);
    session.set_stop(options_.stop);
    Collector out(program->arithmetic, device_);
    double sum = 0;
    for (std::int64_t r = 0; r < ids_.rows; ++r) {
      sum += run_row(session, r, out);
      if (options_.stop.stop_requested()) return interrupted();
    }
    const double loss = predicted_ == 0 ? 0 : -sum / static_cast<double>(predicted_);
    out.append("loss", arithmetic_, &loss, Scalar::f64, 1);
    set_shapes(out);
    if (options_.grads) collect_gradients(session, out);
    if (options_.stop.stop_requested()) return interrupted();
    TraceSummary summary{.rows = ids_.rows,
                         .length = ids_.length,
                         .loss = loss,
                         .predicted = predicted_,
                         .tensors = out.take()};
    if (!options_.out.empty()) {
      write(options_.out, summary.tensors, options_.policy, *program);
      summary.tensors.clear();
    }
    if (!std::isfinite(loss) && broken_.empty()) broken_ = "the loss";
    if (!broken_.empty()) stop(session, loss);
    return summary;
  }

 private:
  TraceSummary interrupted() const {
    TraceSummary nothing;
    nothing.rows = ids_.rows;
    nothing.length = ids_.length;
    nothing.interrupted = true;
    return nothing;
  }

  /// Throws for a trace with non-finite values, with the first of them.
  [[noreturn]] void stop(runtime::Session& session, double loss) {
    std::int64_t row = 0;
    const auto again = [&] {
      Collector unused(session.program().arithmetic, device_);
      for (row = 0; row < ids_.rows; ++row) run_row(session, row, unused);
      if (options_.grads) session.run(graph::Phase::finish, batch_.extent());
    };
    const auto first = runtime::find_first_non_finite(session.executor(), row, again);
    std::string what = fmt::format("trace: {} has values that are not finite", broken_);
    if (!std::isfinite(loss)) what += fmt::format(", the loss is {}", runtime::unsigned_nan(loss));
    if (!options_.out.empty()) what += fmt::format("; the trace was written to {}", options_.out.string());
    runtime::stop_non_finite(what, first, session.program());
  }

  /// Records the name of the first tensor of the trace that is not finite.
  void look(const runtime::Session& session, const std::string& point, plan::BufferId id,
            std::int64_t count) {
    if (broken_.empty() && !device_.all_finite(session.executor().buffer(id), count)) broken_ = point;
  }

  std::size_t at(std::int64_t row, std::int64_t t) const {
    return static_cast<std::size_t>(row * ids_.length + t);
  }

  /// Returns the format that logits are rounded to.
  static Scalar logits_format(const plan::Program& program) {
    const plan::BufferId logits = program.find("logits");
    for (const plan::Step& step : program.steps) {
      if (std::ranges::find(step.outputs, logits) != step.outputs.end()) return step.rounded;
    }
    return program.arithmetic;
  }

  /// Lists the tensors of the trace with their formats before conversion. Throws if a glob of `unconverted`
  /// matches none.
  void name_points(const plan::Program& program) {
    arithmetic_ = program.arithmetic;
    points_ = {{"logits", logits_format(program)}, {"log_probs", arithmetic_}, {"loss", arithmetic_}};
    if (options_.grads) {
      for (const plan::Slot& slot : program.slots) {
        if (slot.gradient != plan::kNoBuffer)
          points_.emplace_back("grad." + slot.name, program.buffer(slot.gradient).type);
      }
    }
    for (const plan::Buffer& buffer : program.buffers) {
      if (traced(buffer)) points_.emplace_back("value." + buffer.name, buffer.type);
    }
    std::vector<std::string> names;
    for (const auto& [name, format] : points_) names.push_back(name);
    for (const std::string& pattern : options_.unconverted) {
      const auto matches = [&](const std::string& name) { return precision::glob_match(pattern, name); };
      if (std::ranges::any_of(names, matches)) continue;
      const std::string near = did_you_mean(pattern, names);
      constexpr std::size_t kMost = 8;
      if (names.size() > kMost) {
        names.resize(kMost);
        names.emplace_back("…");
      }
      throw ConfigError(
          "--unconverted {}: matches no traced tensor{} (names: {}; grad.* with --grads, value.* "
          "with --values)",
          in_quotes(pattern), near, list_of(names));
    }
  }

  /// Returns the format of the tensor `name` in the trace.
  Scalar format_of(const std::string& name) const {
    const auto point =
        std::ranges::find(points_, name, [](const auto& p) -> const std::string& { return p.first; });
    const bool kept = std::ranges::any_of(options_.unconverted, [&](const std::string& pattern) {
      return precision::glob_match(pattern, name);
    });
    return kept && point != points_.end() ? point->second : arithmetic_;
  }

  /// Returns true if --values matches the value.
  bool traced(const plan::Buffer& buffer) const {
    return !options_.values.empty() && buffer.home == plan::Home::activation &&
           buffer.value != graph::kNone && !buffer.integer &&
           precision::glob_match(options_.values, buffer.name);
  }

  /// Runs one row forward and, with gradients, backward. Returns the sum of its labels' log-probabilities.
  double run_row(runtime::Session& session, std::int64_t row, Collector& out) {
    fill_batch(row);
    session.feed(batch_);
    session.run(graph::Phase::forward, batch_.extent());
    const double sum = collect_outputs(session, row, out);
    if (options_.grads) {
      const double weight = predicted_ == 0 ? 0 : -scale_ / static_cast<double>(predicted_);
      std::vector<double> seeds;
      for (const std::int32_t target : batch_.targets()) seeds.push_back(target < 0 ? 0 : weight);
      session.write("dlog_prob", std::span<const double>(seeds));
      session.run(graph::Phase::backward, batch_.extent(), row > 0);
    }
    if (!options_.values.empty()) collect_values(session, out);
    return sum;
  }

  void fill_batch(std::int64_t row) {
    std::vector<std::int32_t> ids, targets;
    for (std::int64_t t = 0; t < ids_.length; ++t) {
      ids.push_back(static_cast<std::int32_t>(ids_.ids[at(row, t)]));
      const std::int64_t label = t + 1 < ids_.length ? ids_.labels[at(row, t + 1)] : kIgnoredLabel;
      targets.push_back(label == kIgnoredLabel ? -1 : static_cast<std::int32_t>(label));
    }
    batch_.clear();
    batch_.add({.ids = ids, .targets = targets, .sequence = static_cast<std::uint64_t>(row)});
  }

  /// Collects logits and log-probabilities of the last row. Returns the sum of its labels' log-probabilities.
  double collect_outputs(const runtime::Session& session, std::int64_t row, Collector& out) {
    const std::int64_t length = ids_.length, vocabulary = source_.config.vocab_size;
    const runtime::Values logits = session.read("logits", length * vocabulary),
                          lse = session.read("lse", length), log_prob = session.read("log_prob", length);
    out.append("logits", format_of("logits"), logits.data(), logits.type(), length * vocabulary);
    look(session, "logits", session.program().required("logits"), length * vocabulary);
    double sum = 0;
    for (std::int64_t t = 0; t + 1 < length; ++t) {
      const auto token = static_cast<std::size_t>(t);
      const std::int64_t next = ids_.ids[at(row, t + 1)];
      // The difference of two numbers of the arithmetic's format, rounded to it, as the head's kernel
      // computes it.
      const double lp = logits[static_cast<std::size_t>(t * vocabulary + next)] - lse[token];
      out.append("log_probs", arithmetic_, &lp, Scalar::f64, 1);
      if (batch_.targets()[token] >= 0) sum += log_prob[token];
    }
    return sum;
  }

  void collect_values(const runtime::Session& session, Collector& out) {
    const plan::Program& program = session.program();
    const std::int64_t tokens = batch_.tokens();
    bool any = false;
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const plan::Buffer& buffer = program.buffers[b];
      if (!traced(buffer)) continue;
      any = true;
      const std::int64_t width =
          buffer.shape.rank() > 1 ? buffer.shape.count() / buffer.shape.dim(0).size : 1;
      const std::string point = "value." + buffer.name;
      out.append(point, format_of(point), session.read(static_cast<plan::BufferId>(b), tokens * width).data(),
                 buffer.type, tokens * width);
      out.set_shape(point, {ids_.rows * ids_.length, width});
    }
    if (!any) {
      std::string some;
      for (const plan::Buffer& b : program.buffers) {
        if (b.home == plan::Home::activation && b.value != graph::kNone && some.size() < 200)
          some += " " + b.name;
      }
      throw ConfigError("--values {}: matches no value of the plan; some are:{} …", options_.values, some);
    }
  }

  void set_shapes(Collector& out) {
    out.set_shape("logits", {ids_.rows, ids_.length, source_.config.vocab_size});
    out.set_shape("log_probs", {ids_.rows, ids_.length - 1});
    out.set_shape("loss", {1});
  }

  void collect_gradients(runtime::Session& session, Collector& out) {
    session.run(graph::Phase::finish, batch_.extent());
    for (const plan::Slot& slot : session.program().slots) {
      if (slot.gradient == plan::kNoBuffer) continue;
      const runtime::Values values = session.read(slot.gradient, slot.shape.count());
      std::vector<double> wide(static_cast<std::size_t>(slot.shape.count()));
      kernels::cast(device_.host(), slot.shape.count(), values.data(), values.type(), wide.data(),
                    Scalar::f64);
      for (double& x : wide) x /= scale_;
      const std::string point = "grad." + slot.name;
      look(session, point, slot.gradient, slot.shape.count());
      out.append(point, format_of(point), wide.data(), Scalar::f64, slot.shape.count());
      out.set_shape(point, slot.shape.sizes());
    }
  }

  const TraceOptions& options_;
  const runtime::Device& device_;
  weights::ModelSource source_;
  TraceIds ids_;
  std::int64_t predicted_ = 0;
  double scale_ = 1;  // the policy's initial loss scale
  Scalar arithmetic_ = Scalar::f32;
  std::vector<std::pair<std::string, Scalar>> points_;
  runtime::Batch batch_;  // the current row
  std::string broken_;    // the first tensor that is not finite
};

}  // namespace

TraceSummary write_trace(const TraceOptions& options, const runtime::Device& device) {
  check_place(options);
  return Tracer(options, device).run();
}

}  // namespace mantissa::train
