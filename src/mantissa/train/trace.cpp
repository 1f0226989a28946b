#include "mantissa/train/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/kernels/update.h"
#include "mantissa/model/llama.h"
#include "mantissa/plan/compile.h"
#include "mantissa/runtime/batch.h"
#include "mantissa/runtime/executor.h"
#include "mantissa/train/model_io.h"

namespace mantissa::train {
namespace {

/// Ids of a [B, T] tensor of a safetensors file.
struct IdTable {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids;
};

IdTable read_ids(const io::SafetensorsReader& file, const io::TensorInfo& info) {
  const bool wide = info.dtype == io::Dtype::i64;
  if (!wide && info.dtype != io::Dtype::i32) {
    throw DtypeError(
        fmt::format("{0}: is {1} in {2}, but {3} are I32 or I64 and no policy converts them; save it with "
                    "tensor.to(torch.int64) in PyTorch, or .astype(numpy.int32) in NumPy",
                    info.name, io::safetensors_name(info.dtype), file.path().string(),
                    info.name == "labels" ? "labels" : "ids"));
  }
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1) {
    throw ShapeError(
        fmt::format("{}: tensor \"{}\" has {} dimensions or none of its elements; it must be [batch, tokens]",
                    file.path().string(), info.name, info.shape.size()));
  }
  IdTable table{info.shape[0], info.shape[1], {}};
  const auto count = static_cast<std::size_t>(info.count());
  table.ids.resize(count);
  if (wide) {
    file.read(info, std::as_writable_bytes(std::span(table.ids)));
  } else {
    std::vector<std::int32_t> narrow(count);
    file.read(info, std::as_writable_bytes(std::span(narrow)));
    std::copy(narrow.begin(), narrow.end(), table.ids.begin());
  }
  return table;
}

constexpr std::int64_t kIgnored = -100;

void check_range(const IdTable& table, std::int64_t vocabulary, bool labels, const std::string& where) {
  for (std::size_t i = 0; i < table.ids.size(); ++i) {
    const std::int64_t id = table.ids[i];
    if ((id < 0 || id >= vocabulary) && !(labels && id == kIgnored)) {
      throw ConfigError(fmt::format("{}: {} [{}, {}] is {}, but the vocabulary has {} entries (0 … {}{})",
                                    where, labels ? "labels" : "input_ids",
                                    i / static_cast<std::size_t>(table.length),
                                    i % static_cast<std::size_t>(table.length), id, vocabulary,
                                    vocabulary - 1, labels ? ", or -100 where ignored" : ""));
    }
  }
}

/// Values collected row by row, in the arithmetic's format.
class Collector {
 public:
  Collector(Scalar arithmetic, const kernels::Context& ctx) : arithmetic_(arithmetic), ctx_(ctx) {}

  /// Appends `count` elements to the tensor called `name`, whose shape is [parts…].
  void append(const std::string& name, const void* data, Scalar type, std::int64_t count) {
    std::vector<std::byte>& to = find(name);
    const std::size_t old = to.size();
    to.resize(old + static_cast<std::size_t>(count) * mantissa::bytes_of(arithmetic_));
    kernels::cast(ctx_, count, data, type, to.data() + old, arithmetic_);
  }
  void set_shape(const std::string& name, std::vector<std::int64_t> shape) {
    find(name);
    shapes_[index(name)] = std::move(shape);
  }
  std::vector<io::TensorToWrite> tensors() const {
    std::vector<io::TensorToWrite> out;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      io::TensorToWrite t;
      t.name = names_[i];
      t.dtype = arithmetic_ == Scalar::f64 ? io::Dtype::f64 : io::Dtype::f32;
      t.shape = shapes_[i];
      t.bytes = bytes_[i];
      out.push_back(std::move(t));
    }
    return out;
  }

 private:
  std::size_t index(const std::string& name) const {
    return static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
  }
  std::vector<std::byte>& find(const std::string& name) {
    if (index(name) == names_.size()) {
      names_.push_back(name);
      shapes_.emplace_back();
      bytes_.emplace_back();
    }
    return bytes_[index(name)];
  }

  Scalar arithmetic_;
  const kernels::Context& ctx_;
  std::vector<std::string> names_;
  std::vector<std::vector<std::int64_t>> shapes_;
  std::deque<std::vector<std::byte>> bytes_;
};

double number_at(Matrix m, std::int64_t i) {
  return m.type == Scalar::f64 ? static_cast<double*>(m.data)[i]
                               : static_cast<double>(static_cast<float*>(m.data)[i]);
}
void put_number(Matrix m, std::int64_t i, double x) {
  if (m.type == Scalar::f64) {
    static_cast<double*>(m.data)[i] = x;
  } else {
    static_cast<float*>(m.data)[i] = static_cast<float>(x);
  }
}

class Tracer {
 public:
  Tracer(const TraceOptions& options, const kernels::Context& ctx)
      : options_(options), ctx_(ctx), source_(find_model(options.model)) {
    if (options.policy.loss_scale().kind != precision::LossScale::Kind::none)
      scale_ = options.policy.loss_scale().value;
    const io::SafetensorsReader file(options.tokens);
    const io::TensorInfo* ids = file.find("input_ids");
    if (ids == nullptr) {
      throw FileError(fmt::format("{}: has no tensor \"input_ids\" [batch, tokens] of I32 or I64",
                                  options.tokens.string()));
    }
    ids_ = read_ids(file, *ids);
    check_range(ids_, source_.config.vocab_size, false, options.tokens.string());
    labels_ = ids_;
    if (const io::TensorInfo* labels = file.find("labels"); labels != nullptr) {
      labels_ = read_ids(file, *labels);
      if (labels_.rows != ids_.rows || labels_.length != ids_.length) {
        throw ShapeError(fmt::format("{}: labels are [{}, {}], but input_ids are [{}, {}]",
                                     options.tokens.string(), labels_.rows, labels_.length, ids_.rows,
                                     ids_.length));
      }
      check_range(labels_, source_.config.vocab_size, true, options.tokens.string());
    }
    for (std::int64_t r = 0; r < ids_.rows; ++r) {
      for (std::int64_t t = 1; t < ids_.length; ++t) predicted_ += labels_.ids[at(r, t)] != kIgnored ? 1 : 0;
    }
  }

  TraceSummary run() {
    const graph::Graph graph = model::build_logits(source_.config, ids_.length, ids_.length, options_.grads);
    plan::CompileOptions compile;
    compile.longest_row = compile.longest_leaf = ids_.length;
    // Values that are asked for must exist and stay: nothing is folded into a neighbour or overwritten. The
    // bits are the same.
    compile.keep_values = !options_.values.empty();
    compile.fold = options_.fold && !compile.keep_values;
    compile.fuse = options_.fuse && !compile.keep_values;
    const plan::Program program = plan::compile(graph, options_.policy, compile, ctx_);
    if (options_.check) options_.check(program);
    const runtime::WeightSet weights = open_weights(program, source_, ctx_);
    runtime::Executor executor(program, weights, ctx_);
    Collector out(program.arithmetic, ctx_);
    const runtime::Batch batch(1, ids_.length, 1);
    double sum = 0;
    for (std::int64_t r = 0; r < ids_.rows; ++r) sum += run_row(executor, batch.extent(), r, out);
    const double loss = predicted_ == 0 ? 0 : -sum / static_cast<double>(predicted_);
    out.append("loss", &loss, Scalar::f64, 1);
    set_shapes(out);
    if (options_.grads) collect_gradients(executor, batch.extent(), out);
    const std::vector<io::TensorToWrite> tensors = out.tensors();
    io::write_safetensors(options_.out, tensors, {{"mantissa.policy", options_.policy.line()}});
    return {ids_.rows, ids_.length, loss, predicted_, tensors.size()};
  }

 private:
  std::size_t at(std::int64_t row, std::int64_t t) const {
    return static_cast<std::size_t>(row * ids_.length + t);
  }

  /// Forward and, with gradients, backward over one row; returns the sum of the labels' log-probabilities.
  double run_row(runtime::Executor& executor, const Extent& extent, std::int64_t row, Collector& out) {
    const std::int64_t length = ids_.length;
    const std::span<std::int32_t> ids = executor.integers("ids");
    const std::span<std::int32_t> targets = executor.integers("targets");
    for (std::int64_t t = 0; t < length; ++t) {
      const auto i = static_cast<std::size_t>(t);
      ids[i] = static_cast<std::int32_t>(ids_.ids[at(row, t)]);
      const std::int64_t label = t + 1 < length ? labels_.ids[at(row, t + 1)] : kIgnored;
      targets[i] = label == kIgnored ? -1 : static_cast<std::int32_t>(label);
    }
    executor.run(graph::Phase::forward, extent);
    const Matrix logits = executor.buffer("logits");
    const Matrix lse = executor.buffer("lse");
    const Matrix log_prob = executor.buffer("log_prob");
    const std::int64_t vocabulary = source_.config.vocab_size;
    out.append("logits", logits.data, logits.type, length * vocabulary);
    double sum = 0;
    for (std::int64_t t = 0; t + 1 < length; ++t) {
      const std::int64_t next = ids_.ids[at(row, t + 1)];
      // The difference of two numbers of the arithmetic's format, rounded to it: what the head's kernel
      // gives.
      const double lp = number_at(logits, t * vocabulary + next) - number_at(lse, t);
      out.append("log_probs", &lp, Scalar::f64, 1);
      if (targets[static_cast<std::size_t>(t)] >= 0) sum += number_at(log_prob, t);
    }
    if (options_.grads) {
      const Matrix seed = executor.buffer("dlog_prob");
      const double weight = predicted_ == 0 ? 0 : -scale_ / static_cast<double>(predicted_);
      for (std::int64_t t = 0; t < length; ++t)
        put_number(seed, t, targets[static_cast<std::size_t>(t)] < 0 ? 0 : weight);
      executor.run(graph::Phase::backward, extent, row > 0);
    }
    if (!options_.values.empty()) collect_values(executor, extent, out);
    return sum;
  }

  void collect_values(const runtime::Executor& executor, const Extent& extent, Collector& out) {
    const plan::Program& program = executor.program();
    bool any = false;
    for (std::size_t b = 0; b < program.buffers.size(); ++b) {
      const plan::Buffer& buffer = program.buffers[b];
      if (buffer.home != plan::Home::activation || buffer.value == graph::kNone || buffer.integer) continue;
      if (!precision::glob_match(options_.values, buffer.name)) continue;
      any = true;
      const std::int64_t width =
          buffer.shape.rank() > 1 ? buffer.shape.count() / buffer.shape.dim(0).size : 1;
      const Matrix m = executor.buffer(static_cast<plan::BufferId>(b));
      out.append("value." + buffer.name, m.data, m.type, extent.tokens * width);
      out.set_shape("value." + buffer.name, {ids_.rows * ids_.length, width});
    }
    if (!any) {
      std::string some;
      for (const plan::Buffer& b : program.buffers) {
        if (b.home == plan::Home::activation && b.value != graph::kNone && some.size() < 200)
          some += " " + b.name;
      }
      throw ConfigError(
          fmt::format("--values {}: matches no value of the plan; some are:{} …", options_.values, some));
    }
  }

  void set_shapes(Collector& out) {
    out.set_shape("logits", {ids_.rows, ids_.length, source_.config.vocab_size});
    out.set_shape("log_probs", {ids_.rows, ids_.length - 1});
    out.set_shape("loss", {1});
  }

  void collect_gradients(runtime::Executor& executor, const Extent& extent, Collector& out) {
    executor.run(graph::Phase::finish, extent);
    for (const plan::Slot& slot : executor.program().slots) {
      const Matrix g = executor.buffer(slot.gradient);
      std::vector<double> wide(static_cast<std::size_t>(slot.shape.count()));
      kernels::cast(ctx_, slot.shape.count(), g.data, g.type, wide.data(), Scalar::f64);
      for (double& x : wide) x /= scale_;
      out.append("grad." + slot.name, wide.data(), Scalar::f64, slot.shape.count());
      std::vector<std::int64_t> shape;
      for (const Dim& d : slot.shape.dims()) shape.push_back(d.size);
      out.set_shape("grad." + slot.name, std::move(shape));
    }
  }

  const TraceOptions& options_;
  const kernels::Context& ctx_;
  ModelSource source_;
  IdTable ids_, labels_;
  std::int64_t predicted_ = 0;
  double scale_ = 1;  // that the policy begins with
};

}  // namespace

TraceSummary write_trace(const TraceOptions& options, const kernels::Context& ctx) {
  return Tracer(options, ctx).run();
}

}  // namespace mantissa::train
