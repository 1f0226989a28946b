// A program for display: each op's formats and the rule that decided them, the remaining casts, and built-in
// formats.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/plan/products.h"
#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// Stands in place of a format where an op has none.
inline constexpr const char* kNoFormat = "–";

/// One op of the plan. Formats are names, or kNoFormat.
struct PlanRow {
  std::string scope, op, pass;
  std::string stored;      // storage format of the weight, or of the input
  std::string multiplied;  // factors of products
  std::string accumulated;
  std::string order;  // of the sums of products: "tile", "chain", "card", or ""
  std::vector<StepProduct> products = {};
  std::string output;
  std::string rounded;  // rounding of the result before the op adds it to a sum, or ""
  std::string decided_by;
  std::string kernel;  // the op's id, and the ops folded into it
  double flops = 0, bytes = 0;
  bool recomputed = false;    // repeated in the backward pass
  std::string gradient = {};  // that a backward product computes: of its "input" or its "weight"; else ""
  bool apart = false;         // the layer's other gradient has other formats

  /// Returns the op in tables: "matmul", or "matmul dx" and "matmul dw" where they are apart.
  std::string shown_op() const { return apart ? op + (gradient == "input" ? " dx" : " dw") : op; }
};

/// Returns a row for every step in execution order, with a second row for parts of an op with separate
/// formats (attention's softmax), followed by the rows of the update.
std::vector<PlanRow> plan_rows(const Program& program);

/// Returns an update's rows over all parameters: for each rule, the masters with their copies and the
/// products between weights, then the moments and compensations.
std::vector<PlanRow> update_rows(const Program& update);

/// Formats rows as a table. Equal layers share a row ("model.layers.*", or "model.layers.{0,2-3}" if others
/// differ), and so do equal ops of a layer ("{q,k,v}_proj"). The two products of a layer's backward pass are
/// one row "matmul", or "matmul dx" and "matmul dw" if their formats differ. Includes either the rows of the
/// phase that are `recomputed` or the others.
std::string plan_table(const std::vector<PlanRow>& rows, graph::Phase phase, bool recomputed = false);

/// Returns the format of a step's factors, or "" without products.
std::string factor_format(const Step& step);

/// Returns true if the products of a step round partial sums.
bool rounds_sums(const Step& step);

/// Returns true if the sums of products are those of a card.
bool has_card(const Step& step);

/// Returns for example "model.layers.0.mlp.up_proj matmul (bf16-mixed)".
std::string use_text(const Step& step);

/// A format that a program needs, with its first use: "model.layers.0.mlp.up_proj matmul (bf16-mixed)".
struct FormatUse {
  std::string format;
  bool factor = false;  // used for factors of products; otherwise only for storage
  std::string use;
};

/// Returns every format of factors and of stored values, each once, factors first.
std::vector<FormatUse> formats_used(const Program& program);

/// The number of steps that only change a format, and the bytes that they move.
struct CastsLeft {
  std::int64_t count = 0;
  double bytes = 0;
};
CastsLeft casts_left(const Program& program);

}  // namespace mantissa::plan
