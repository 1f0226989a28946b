#include "mantissa/plan/compile.h"

#include <algorithm>

#include "mantissa/plan/passes.h"

namespace mantissa::plan {

precision::Pass pass_of(graph::Phase phase) {
  switch (phase) {
    case graph::Phase::forward:
      return precision::Pass::forward;
    case graph::Phase::backward:
      return precision::Pass::backward;
    case graph::Phase::finish:
      return precision::Pass::update;
  }
  return precision::Pass::forward;
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

std::vector<std::vector<std::size_t>> readers_of(const Program& program) {
  std::vector<std::vector<std::size_t>> readers(program.buffers.size());
  const auto add = [&](BufferId b, std::size_t step) {
    std::vector<std::size_t>& r = readers[static_cast<std::size_t>(b)];
    if (r.empty() || r.back() != step) r.push_back(step);
  };
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const Operand& o : program.steps[i].inputs) add(o.buffer, i);
    if (program.steps[i].addend != kNoBuffer) add(program.steps[i].addend, i);
  }
  return readers;
}

std::vector<std::int64_t> writer_of(const Program& program) {
  std::vector<std::int64_t> writer(program.buffers.size(), -1);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const BufferId b : program.steps[i].outputs)
      writer[static_cast<std::size_t>(b)] = static_cast<std::int64_t>(i);
  }
  return writer;
}

bool is_output(const Program& program, BufferId id) {
  return std::any_of(program.outputs.begin(), program.outputs.end(),
                     [&](const auto& o) { return o.second == id; });
}

void estimate_costs(Program& program, const CompileOptions& options, const kernels::Context& ctx) {
  graph::Sizes sizes{program.token_capacity, options.longest_row, options.longest_leaf, program.arithmetic};
  const auto bytes = [&](BufferId b) {
    const Buffer& buffer = program.buffer(b);
    return static_cast<double>(buffer.shape.count()) *
           static_cast<double>(buffer.integer ? sizeof(std::int32_t) : bytes_of(buffer.type));
  };
  for (Step& s : program.steps) {
    // An op asks a graph for the shapes of its operands: a small one that holds just these.
    graph::Graph operands;
    std::vector<graph::ValueId> ids;
    for (const Operand& o : s.inputs) {
      graph::Value value;
      value.name = program.buffer(o.buffer).name;
      value.shape = program.buffer(o.buffer).shape;
      ids.push_back(operands.add_value(std::move(value)));
      s.bytes += bytes(o.buffer);
    }
    sizes.outputs.clear();
    for (const BufferId o : s.outputs) {
      s.bytes += bytes(o);
      sizes.outputs.push_back(program.buffer(o).type);
    }
    if (s.addend != kNoBuffer) s.bytes += bytes(s.addend);
    const graph::NodeView node{operands, ids, s.attributes};
    if (s.op->cost != nullptr) s.flops = s.op->cost(node, sizes).flops;
    if (s.op->workspace != nullptr) s.workspace = s.op->workspace(node, sizes, ctx);
  }
}

Program compile(const graph::Graph& graph, const precision::Policy& policy, const CompileOptions& options,
                const kernels::Context& ctx) {
  Program program = assign_formats(graph, policy);
  for (const graph::Value& v : graph.values()) {
    if (v.shape.has_tokens()) program.token_capacity = std::max(program.token_capacity, v.shape.dim(0).size);
  }
  if (options.fold) fold_casts(program);
  if (options.fuse) fuse_pointwise(program);
  estimate_costs(program, options, ctx);
  lay_out_memory(program, options.keep_values);
  return program;
}

}  // namespace mantissa::plan
