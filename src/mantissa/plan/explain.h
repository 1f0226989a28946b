// A program as a person reads it: each op's formats and the rule that decided them, what stays cast, what is
// built in.
#pragma once

#include <string>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// One op of the plan. Formats are names; "–" where there is none of the kind.
struct PlanRow {
  std::string scope, op, pass;
  std::string stored;      // how the weight, or the input, lies in memory
  std::string multiplied;  // factors of products
  std::string accumulated;
  std::string output;
  std::string rounded;  // what the result is rounded to before the sum that the op adds it to; "" elsewhere
  std::string decided_by;
  std::string kernel;  // what runs: the op's id and what was folded into it
  double flops = 0, bytes = 0;
  bool recomputed = false;  // of the forward pass, made again in the backward pass
};

/// Every step in the order in which it runs, with a second row for the parts of an op that keep a format of
/// their own (attention's softmax), and the rows of the update.
std::vector<PlanRow> plan_rows(const Program& program);

/// An update's rows over all parameters: for each rule of update the masters with their copies and the
/// products between weights, then what is kept of moments and of compensations.
std::vector<PlanRow> update_rows(const Program& update);

/// The rows of equal layers as one ("model.layers.*", or "model.layers.{0,2-3}" where others differ), equal
/// ops of a layer as one ("{q,k,v}_proj"), as a table. Those that are `recomputed` in the phase, or the
/// others.
std::string plan_table(const std::vector<PlanRow>& rows, graph::Phase phase, bool recomputed = false);

/// The format of a step's factors; "" where it multiplies none.
std::string factor_format(const Step& step);

/// Whether the products of a step round their sums on the way.
bool rounds_sums(const Step& step);

/// "model.layers.0.mlp.up_proj matmul (bf16-mixed)"
std::string use_text(const Step& step);

/// A format that a program needs, and the first of its uses: "model.layers.0.mlp.up_proj matmul
/// (bf16-mixed)".
struct FormatUse {
  std::string format;
  bool factor = false;  // factors of products have it; else values only lie in memory in it
  std::string use;
};

/// Every format of factors and of values in memory, each once, factors first.
std::vector<FormatUse> formats_used(const Program& program);

/// Steps that only change a format: how many, and the bytes they move.
struct CastsLeft {
  std::int64_t count = 0;
  double bytes = 0;
};
CastsLeft casts_left(const Program& program);

}  // namespace mantissa::plan
