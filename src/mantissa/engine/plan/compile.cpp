#include "mantissa/engine/plan/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/policy_uses.h"

namespace mantissa::plan {

precision::Use interior_use(std::string_view scope, std::string_view interior, graph::Phase phase) {
  return {.scope = scope, .op = interior, .pass = pass_of(phase), .interior = true};
}

std::string interior_decided_by(const Program& program, const Step& step) {
  constexpr std::array<std::string_view, 1> kCompute = {"compute"}, kState = {"state"};
  if (step.op->kind == graph::OpKind::recurrence)
    return program.policy.decided_by(state_use(step.scope), kState);
  const precision::Use use = interior_use(step.scope, step.op->interior, step.phase);
  return program.policy.matching_rules(use).empty() ? "built-in" : program.policy.decided_by(use, kCompute);
}

precision::Pass pass_of(graph::Phase phase) {
  switch (phase) {
    case graph::Phase::forward:
    case graph::Phase::evaluate:
      return precision::Pass::forward;
    case graph::Phase::backward:
      return precision::Pass::backward;
    case graph::Phase::finish:
    case graph::Phase::update:
      return precision::Pass::update;
  }
  return precision::Pass::forward;
}

Layout Buffer::layout() const {
  Layout l{.type = type, .integer = integer};
  const bool weight = home == Home::copy || home == Home::gathered;
  const bool values = scaled && scaled->blocks && in_f32(scaled->scaling, *scaled->blocks);
  if (scaled && scaled->blocks && !values && (weight || !scaled->along_rows))
    l.blocks = Blocks{*scaled->blocks, scaled->along_rows};
  return l;
}

Shape Buffer::held_shape() const {
  if (chunk == 0 || shape.dim(0).size <= chunk) return shape;
  std::vector<Dim> dims = shape.dims();
  dims.front().size = chunk;
  return Shape(std::move(dims));
}

std::size_t Buffer::stored_bytes() const {
  if (codes != StateCodes::none)
    return BlockedState{codes, nullptr, static_cast<std::size_t>(shape.count())}.bytes();
  return quants ? quants->bytes(shape) : layout().bytes(shape);
}

BufferId Program::find(std::string_view name) const {
  for (const auto& [output, b] : outputs) {
    if (output == name) return b;
  }
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    if (buffers[b].home != Home::activation && buffers[b].name == name) return static_cast<BufferId>(b);
  }
  return kNoBuffer;
}

BufferId Program::required(std::string_view name) const {
  const BufferId id = find(name);
  if (id == kNoBuffer) throw InternalError("the program has no buffer \"{}\"", name);
  return id;
}

bool is_output(const Program& program, BufferId id) {
  return std::any_of(program.outputs.begin(), program.outputs.end(),
                     [&](const auto& o) { return o.second == id; });
}

void add_deciders(Step& step, const Step& part) {
  std::string_view rest = part.decided_by;
  while (!rest.empty()) {
    const std::string one(rest.substr(0, rest.find('+')));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (fmt::format("+{}+", step.decided_by).find(fmt::format("+{}+", one)) == std::string::npos)
      step.decided_by += "+" + one;
  }
}

namespace {

/// A graph with only the operands of a step, from which its op computes cost and workspace. Token axes have
/// at most `most_tokens` tokens.
struct OperandsOfStep {
  graph::Graph graph;
  std::vector<graph::ValueId> ids;

  OperandsOfStep(const Program& program, const Step& s, std::int64_t most_tokens) {
    for (const Operand& o : s.inputs) {
      const Buffer& b = program.buffer(o.buffer);
      std::vector<Dim> dims = b.shape.dims();
      if (b.shape.has_tokens()) dims.front().size = std::min(dims.front().size, most_tokens);
      graph::Value value;
      value.name = b.name;
      value.shape = Shape(std::move(dims));
      ids.push_back(graph.add_value(std::move(value)));
    }
  }
};

}  // namespace

void estimate_costs(Program& program, const CompileOptions& options, const kernels::Context& ctx) {
  graph::Sizes sizes{.tokens = program.token_capacity,
                     .longest_row = options.longest_row,
                     .longest_leaf = options.longest_leaf,
                     .sequence_parts = options.sequence_parts,
                     .arithmetic = program.arithmetic};
  const auto bytes = [&](BufferId b) { return static_cast<double>(program.buffer(b).stored_bytes()); };
  std::vector<std::int64_t> at_once(program.steps.size(), program.token_capacity);  // tokens, by step
  for (const ChunkedSteps& range : program.chunked) {
    for (std::size_t i = range.begin; i < range.end; ++i) at_once[i] = range.tokens;
  }
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    Step& s = program.steps[i];
    sizes.inputs.clear();
    for (const Operand& o : s.inputs) {
      s.bytes += bytes(o.buffer);
      sizes.inputs.push_back(program.buffer(o.buffer).type);
    }
    sizes.outputs.clear();
    for (const BufferId o : s.outputs) {
      s.bytes += bytes(o);
      sizes.outputs.push_back(program.buffer(o).type);
    }
    if (s.addend != kNoBuffer) s.bytes += bytes(s.addend);
    sizes.tokens = program.token_capacity;
    sizes.parts = s.compute.parts;
    sizes.rounds_sums = s.accumulator.rounds();
    const OperandsOfStep operands(program, s, sizes.tokens);
    const graph::NodeView node{operands.graph, operands.ids, s.attributes};
    const graph::Cost cost = s.op->cost != nullptr ? s.op->cost(node, sizes) : graph::Cost{};
    s.flops = cost.flops;
    s.capped = cost.capped;
    s.executed_flops = s.op->executed_flops != nullptr ? s.op->executed_flops(node, sizes) : s.flops;
    if (s.op->workspace == nullptr) continue;
    sizes.tokens = at_once[i];
    const OperandsOfStep held(program, s, sizes.tokens);
    s.workspace = s.op->workspace({held.graph, held.ids, s.attributes}, sizes, ctx);
  }
}

namespace {

/// Runs the passes that depend on whether steps run in chunks.
Program completed(Program program, const CompileOptions& options, const kernels::Context& ctx,
                  bool in_chunks) {
  recompute(program, options.recompute, in_chunks);
  if (options.views && !options.keep_values) view_columns(program);
  hold_quantized(program, options.quantized);
  if (in_chunks) chunk_tokens(program, options.chunk_tokens, options.longest_leaf);
  estimate_costs(program, options, ctx);
  lay_out_memory(program, options.keep_values);
  return program;
}

}  // namespace

Program compile(const graph::Graph& graph, const precision::Policy& policy, const CompileOptions& options,
                const kernels::Context& ctx) {
  Program program = options.updates == nullptr ? assign_formats(graph, policy)
                                               : assign_update(graph, policy, *options.updates);
  for (const graph::Value& v : graph.values()) {
    if (v.shape.has_tokens()) program.token_capacity = std::max(program.token_capacity, v.shape.dim(0).size);
  }
  program.positions = graph.positions();
  program.shards = options.shards;
  program.reduce = policy.fields().reduce.value();
  program.reduce_rounding = policy.fields().reduce_rounding.value();
  if (options.fold) fold_casts(program);
  if (options.join_head) join_head(program);
  if (options.fuse) fuse_pointwise(program);
  if (options.one_micro_batch) join_uses(program);
  Program whole = completed(program, options, ctx, false);
  if (options.keep_values || options.chunk_tokens == 0 || program.token_capacity <= options.chunk_tokens)
    return whole;
  Program chunked = completed(std::move(program), options, ctx, true);
  return chunked.memory.arena() < whole.memory.arena() ? std::move(chunked) : std::move(whole);
}

}  // namespace mantissa::plan
