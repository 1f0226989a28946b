// Time: each step of a plan by the work of its kernel, at shares of the measured peak.
#include <algorithm>
#include <optional>

#include "mantissa/engine/comm/shard_sum.h"
#include "mantissa/engine/plan/products.h"
#include "mantissa/kernels/formulas.h"
#include "mantissa/setup/forecast/forecast.h"
#include "mantissa/setup/forecast/other_passes.h"

namespace mantissa::forecast {
namespace {

/// The work of kernels besides the multiply-adds of their products, in flops at the peak, so that it scales
/// with clock, vector width and threads. Fitted to bench_step: products reach the share for any shape, and
/// the rest is work per call, row, score, logit or element.
struct Work {
  double product_share = 0.87;   // of multiply-adds in products
  double product_call = 7e6;     // starting threads, packing the smaller factor
  double gradient_call = 26e6;   // of a weight gradient: both factors are packed transposed
  double gradient_element = 14;  // adding a leaf to a weight gradient
  double forward_share = 0.64;   // of multiply-adds in attention
  double backward_share = 0.5;
  double recurrence_share = 0.35;  // of multiply-adds in recurrences
  double forward_score = 100;      // exp, mask, row sums
  double backward_score = 125;
  double logit = 350;            // softmax of the head and its gradient
  double capped = 110;           // soft cap of a score or logit: 95 forward, 124 backward
  double element = 24;           // read or written by a step without products
  double exp_element = 38;       // if the step computes an exponential
  double gathered_element = 90;  // one row at a time, by one thread if rows are summed
  double scaled_element = 32;    // rounded with a tensor's scale
  double block_element = 52;     // rounded with its block's scale
  double rounded_sum = 20;       // of a sum that is rounded after a number of terms
  double call = 2.4e6;
  double random_value = 117;   // stochastic rounding of a weight or moment
  double scaled_state = 90;    // a moment in blocks of e4m3 or f16, decoded and encoded
  double dynamic_state = 900;  // the same of dynamic8, whose codes are searched for
  double interpreted = 8;      // one operation on one element, in an update that is not compiled
};

/// The speed of a typical step, relative to a step in which every op runs at its best speed.
constexpr double kRunShare = 0.9;

constexpr Work kWork;

double elements(const plan::Program& program, plan::BufferId id) {
  return static_cast<double>(program.buffer(id).shape.count());
}

/// Returns the number of elements that the step reads and writes.
double elements_moved(const plan::Program& program, const plan::Step& s) {
  double count = s.addend == plan::kNoBuffer ? 0 : elements(program, s.addend);
  for (const plan::Operand& o : s.inputs) count += elements(program, o.buffer);
  for (const plan::BufferId o : s.outputs) count += elements(program, o);
  return count;
}

/// Returns the number of products: factors in parts need one for every two parts whose terms count
/// (core/numeric/factor.h).
int products_of(const plan::Step& s) {
  return s.compute.parts * (s.compute.parts + 1) / 2;
}

/// Returns the work of products with the rate that was measured for them, in flops at the peak of fused
/// multiply-adds; without one, that of a typical share, with the rounding of sums.
double product_work(const plan::Program& program, const plan::Step& s, double flops, const Machine& machine) {
  if (const std::optional<plan::StepProduct> product = plan::product_of(program, s)) {
    const auto rate = std::ranges::find(machine.products, product->stored, &ProductRate::product);
    if (rate != machine.products.end()) return flops * machine.flops_per_second / rate->flops_per_second;
  }
  const Accumulator& sums = s.accumulator;
  const std::int64_t terms = sums.block == 0 ? kSumBlock : sums.block;
  const double roundings = sums.rounds() ? flops / 2 / static_cast<double>(terms) : 0;
  return flops * products_of(s) / kWork.product_share + roundings * kWork.rounded_sum;
}

double head_flops(const plan::Program& program, const plan::Step& s, const Machine& machine) {
  const double logits = static_cast<double>(program.token_capacity) *
                        static_cast<double>(program.buffer(s.inputs[1].buffer).shape.dim(0).size);
  return product_work(program, s, s.executed_flops, machine) + logits * kWork.logit;
}

double matmul_flops(const plan::Program& program, const plan::Step& s, std::int64_t longest_leaf,
                    const Machine& machine) {
  const double products = product_work(program, s, s.flops, machine);
  const bool by_tiles = machine.peak_of(kernels::UnitId::tdpbf16ps) > machine.flops_per_second &&
                        s.accumulator.order == SumOrder::tile;
  // Tiles keep the sums of a leaf in registers, and the measured rate includes the transposed packing.
  if (!s.op->sums_tokens || by_tiles) return products + kWork.product_call;
  const double leaves = static_cast<double>(program.token_capacity) /
                        static_cast<double>(std::max<std::int64_t>(longest_leaf, 1));
  return products + kWork.gradient_call +
         leaves * elements(program, s.outputs.front()) * kWork.gradient_element;
}

double attention_flops(const plan::Step& s) {
  const auto head_dim = static_cast<double>(s.attributes.integer("head_dim"));
  const bool forward = s.op->gradient != nullptr;
  const double scores = s.flops / ((forward ? 4 : 8) * head_dim);
  const double products = s.flops * products_of(s);
  return forward ? products / kWork.forward_share + scores * kWork.forward_score
                 : products / kWork.backward_share + scores * kWork.backward_score;
}

/// Returns true if the program computes an exponential, or a function based on one.
bool takes_exponentials(const kernels::Expression& program) {
  using kernels::Opcode;
  return std::ranges::any_of(program.code, [](const kernels::Instruction& i) {
    return i.op == Opcode::exp || i.op == Opcode::tanh || i.op == Opcode::sigmoid ||
           i.op == Opcode::normal_cdf;
  });
}

double other_flops(const plan::Program& program, const plan::Step& s) {
  const auto& quantization = program.buffer(s.outputs.front()).scaled;
  const double element = quantization ? quantization->blocks ? kWork.block_element : kWork.scaled_element
                         : s.op->kind == graph::OpKind::lookup ? kWork.gathered_element
                         : takes_exponentials(s.expression)    ? kWork.exp_element
                                                               : kWork.element;
  return kWork.call + elements_moved(program, s) * element;
}

/// Returns the work of an update step besides memory traffic: random bits, and operations of interpreted
/// programs.
double update_flops(const plan::Program& program, const plan::Step& s) {
  double flops = 0;
  for (const plan::BufferId o : s.outputs) {
    const plan::Buffer& b = program.buffer(o);
    const bool kept = b.home == plan::Home::master || b.home == plan::Home::kept;
    if (kept && s.rounding == Rounding::stochastic && !holds(b.type, program.arithmetic))
      flops += elements(program, o) * kWork.random_value;
  }
  bool blocked = false;
  for (const plan::BufferId o : s.outputs) {
    const StateCodes codes = program.buffer(o).codes;
    if (codes == StateCodes::none) continue;
    blocked = true;
    const bool plain = codes == StateCodes::e4m3 || codes == StateCodes::f16;
    flops += elements(program, o) * (plain ? kWork.scaled_state : kWork.dynamic_state);
  }
  if (blocked || !kernels::runs_compiled(s.expression))
    flops += elements(program, s.inputs.front().buffer) * static_cast<double>(s.expression.code.size()) *
             kWork.interpreted;
  return flops;
}

/// Returns the bytes of the check that all weights will be finite, which reads the operands of the update.
double range_check_traffic(const plan::Program& update) {
  double bytes = 0;
  for (const plan::Step& s : update.steps) {
    if (!s.may_break) continue;
    for (const plan::Operand& o : s.inputs) bytes += static_cast<double>(update.buffer(o.buffer).bytes);
  }
  return bytes;
}

/// Returns the bytes of the sum over shards: each gradient is rounded into a sum or added to one. Both are
/// read, one is written.
double shard_sum_traffic(const plan::Program& program) {
  if (program.shards == 1) return 0;
  const double sums = static_cast<double>(shard_sum_bytes(program)) /
                      static_cast<double>(comm::waiting_sums({0, program.shards}, program.shards));
  const double shards = static_cast<double>(program.shards);
  return shards * static_cast<double>(program.memory.gradients) + (3 * shards - 2) * sums;
}

/// Returns the work of the random bits of the sum over shards, which rounds every gradient and every sum.
double shard_sum_flops(const plan::Program& program) {
  if (program.shards == 1 || program.reduce_rounding != Rounding::stochastic) return 0;
  double count = 0;
  for (const plan::Slot& slot : program.slots) {
    if (slot.gradient != plan::kNoBuffer) count += static_cast<double>(slot.shape.count());
  }
  return static_cast<double>(2 * program.shards - 1) * count * kWork.random_value;
}

}  // namespace

double seconds_at_peak(const plan::Program& program, const Machine& machine, const runtime::Device& device) {
  double seconds = 0;
  for (const plan::Step& s : program.steps) {
    if (s.phase == graph::Phase::evaluate || s.recomputed) continue;
    if (const std::optional<plan::StepProduct> product = plan::product_of(program, s))
      seconds += s.flops / machine.peak_of(unit_on(device, *product).id);
  }
  return seconds;
}

double step_seconds(const plan::Program& program, const plan::Step& s, std::int64_t longest_leaf,
                    const Machine& machine) {
  const auto flops_of = [&] {
    switch (s.op->kind) {
      case graph::OpKind::product:
        return matmul_flops(program, s, longest_leaf, machine);
      case graph::OpKind::head:
        return head_flops(program, s, machine);
      case graph::OpKind::attention:
        return attention_flops(s);
      case graph::OpKind::recurrence:
        return s.executed_flops / kWork.recurrence_share + kWork.call;
      default:
        return other_flops(program, s);
    }
  };
  const double computed = (flops_of() + s.capped * kWork.capped) / machine.flops_per_second;
  const double moved = s.bytes / machine.bytes_per_second;
  // The rate of packed products was measured on operands in the caches.
  const std::optional<plan::StepProduct> product = plan::product_of(program, s);
  const bool packed = product && product->kernel == kernels::ProductKernel::packed;
  return packed ? computed + moved : std::max(computed, moved);
}

double update_bytes(const plan::Program& program) {
  if (!program.update) return 0;
  // The norm reads the gradients. The update reads them again, with weights and states, which it writes.
  double bytes = static_cast<double>(program.memory.gradients) + range_check_traffic(*program.update) +
                 shard_sum_traffic(program);
  for (const plan::Step& s : program.update->steps) bytes += s.bytes;
  return bytes;
}

double update_seconds(const plan::Program& program, const Machine& machine) {
  if (!program.update) return 0;
  double moved = update_bytes(program), computed = shard_sum_flops(program), products = 0;
  for (const plan::Step& s : program.update->steps) {
    if (s.op->kind == graph::OpKind::product) {
      moved -= s.bytes;
      products += step_seconds(*program.update, s, 1, machine);
    } else {
      computed += update_flops(*program.update, s);
    }
  }
  return products + std::max(moved / machine.bytes_per_second, computed / machine.flops_per_second);
}

namespace {

/// Returns the seconds of all micro-batches of an optimizer step at the rates of the machine.
double micro_batch_seconds(const plan::Program& program, const config::RunConfig& config,
                           const Machine& machine) {
  const std::int64_t leaf = config.batch.leaf * config.data.sequence_length;
  double micro = 0;
  for (const plan::Step& s : program.steps) {
    if (s.phase == graph::Phase::evaluate) continue;
    // Of the ranks that share rows one computes states at a time.
    const bool waits = s.op->kind == graph::OpKind::recurrence;
    const std::int64_t turns = waits ? config.distributed.sequence_shards : 1;
    micro += static_cast<double>(turns) * step_seconds(program, s, leaf, machine);
  }
  return micro * static_cast<double>(config.batch.global_batch_size) /
         static_cast<double>(config.batch.micro_batch_size);
}

}  // namespace

double forecast_seconds(const plan::Program& program, const config::RunConfig& config,
                        const Machine& machine) {
  return (micro_batch_seconds(program, config, machine) + update_seconds(program, machine)) / kRunShare;
}

std::size_t process_bytes(std::span<const OtherPass> passes) {
  constexpr std::size_t kDecoding = 1'500'000;
  return std::ranges::any_of(passes, [](const OtherPass& pass) { return pass.generated > 0; }) ? kDecoding
                                                                                               : 0;
}

void add_memory(MemoryForecast& forecast, std::span<const OtherPass> passes, std::size_t training_arena) {
  forecast.process += process_bytes(passes);
  std::size_t arena = training_arena;
  for (const OtherPass& pass : passes) {
    forecast.reference += pass.weights;
    arena = std::max(arena, pass.program->memory.arena());
  }
  forecast.work += arena - training_arena;
}

namespace {

/// Returns the seconds of generating the tokens of a pass with all streams of its program. A step that reads
/// a weight takes at least the time of reading it.
double decoding_seconds(const OtherPass& pass, const Machine& machine) {
  const plan::Program& program = *pass.program;
  const auto streams = static_cast<double>(program.buffer(program.required("rows")).shape.count());
  const double share = streams / static_cast<double>(program.token_capacity);
  double seconds = 0;
  for (const plan::Step& s : program.steps) {
    double weights = 0;
    for (const plan::Operand& o : s.inputs) {
      const plan::Buffer& b = program.buffer(o.buffer);
      if (b.home == plan::Home::master || b.home == plan::Home::copy) weights += static_cast<double>(b.bytes);
    }
    const double reading = s.op->kind == graph::OpKind::lookup ? 0 : weights / machine.bytes_per_second;
    seconds += std::max(reading, share * step_seconds(program, s, program.token_capacity, machine));
  }
  return seconds * pass.generated / streams;
}

}  // namespace

double forecast_seconds(std::span<const OtherPass> passes, const config::RunConfig& config,
                        const Machine& machine, int ranks) {
  double seconds = 0;
  for (const OtherPass& pass : passes)
    seconds += pass.generated > 0 ? decoding_seconds(pass, machine) / ranks
                                  : pass.runs * micro_batch_seconds(*pass.program, config, machine);
  return seconds / kRunShare;
}

}  // namespace mantissa::forecast
