#include "mantissa/lab/audit/expected_gradients.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa::lab {
namespace {

/// Returns the branch of the residual stream to which a scope belongs, "model.layers.3.mlp": the scope up to
/// the name after the first number; "" outside of layers.
std::string branch_of(std::string_view scope) {
  for (std::size_t at = 0; at < scope.size();) {
    const std::size_t dot = std::min(scope.find('.', at), scope.size());
    const std::string_view part = scope.substr(at, dot - at);
    if (!part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; })) {
      const std::size_t end = dot < scope.size() ? scope.find('.', dot + 1) : scope.size();
      return std::string(scope.substr(0, end));
    }
    at = dot + 1;
  }
  return "";
}

constexpr std::size_t kNoBranch = static_cast<std::size_t>(-1);

/// The operands of a product.
struct Product {
  std::size_t branch = kNoBranch;
  double squares = 0;  // Σ u²
  double coarsest = 0;
  std::string format = {};
};

class Paths {
 public:
  explicit Paths(const plan::Program& program) : p_(program), writers_(program.buffers.size()) {
    std::vector<std::string> branches;
    for (std::size_t s = 0; s < p_.steps.size(); ++s) {
      const plan::Step& step = p_.steps[s];
      Product& product = products_.emplace_back();
      if (step.phase == graph::Phase::evaluate) continue;
      for (const plan::BufferId out : step.outputs) writers_[whole(out)].push_back(s);
      product = product_of(step);
      const std::string branch = branch_of(step.scope);
      if (product.squares == 0 || branch.empty()) continue;
      product.branch = static_cast<std::size_t>(std::ranges::find(branches, branch) - branches.begin());
      if (product.branch == branches.size()) branches.push_back(branch);
    }
    branches_ = branches.size();
  }

  ExpectedError of(const plan::Slot& slot) const {
    const std::vector<bool> reached = ancestors(slot.gradient);
    // The parameter belongs to the first branch whose backward products its gradient needs; that of the last
    // norm and of the head needs none.
    std::size_t own = branches_;
    for (std::size_t s = 0; s < products_.size(); ++s) {
      if (reached[s] && is_backward(s)) own = std::min(own, products_[s].branch);
    }
    ExpectedError expected;
    double most = 0;
    for (std::size_t s = 0; s < products_.size(); ++s) {
      const Product& product = products_[s];
      // A repeated step has the roundings of the first one, on which the loss depends.
      if (!reached[s] || product.squares == 0 || p_.steps[s].recomputed) continue;
      const bool head = product.branch == kNoBranch;
      double gain = head || product.branch == own ? 1 : 0, logits = head ? 1 : 0;
      if (!head && is_backward(s) && product.branch > own) gain = 1 / terms_below(product.branch);
      if (!head && !is_backward(s)) {
        gain += gain_of_stream(product.branch, own);
        logits = in_stream(product.branch, branches_);
      }
      expected.squares += gain * product.squares;
      expected.of_logits += logits * product.squares;
      if ((gain + logits) * product.squares > most)
        most = (gain + logits) * product.squares, expected.coarsest = product.format;
    }
    return expected;
  }

 private:
  /// Returns the buffer of which `id` is a view, or itself.
  std::size_t whole(plan::BufferId id) const {
    const plan::BufferId parent = p_.buffer(id).parent;
    return static_cast<std::size_t>(parent == plan::kNoBuffer ? id : parent);
  }

  bool is_backward(std::size_t step) const { return p_.steps[step].phase != graph::Phase::forward; }

  /// Returns the terms of the stream's gradient once branch `b` has added its own.
  double terms_below(std::size_t b) const { return static_cast<double>(branches_ - b) + 1; }

  /// Returns the part of the squared error of branch `from` that reaches the input of branch `to`: 1/s of
  /// it, the branch's part of the stream of s terms, times 1 + 1/s for each of the branches between.
  static double in_stream(std::size_t from, std::size_t to) {
    if (from >= to) return 0;
    const double terms = static_cast<double>(from) + 2;
    return (static_cast<double>(to) + 2) / (terms * (terms + 1));
  }

  /// Returns the part that reaches the gradient of a parameter of branch `own` by the values of the stream:
  /// of its own branch, and of those through which its gradient comes.
  double gain_of_stream(std::size_t from, std::size_t own) const {
    double gain = 2 * in_stream(from, own);
    for (std::size_t b = own + 1; b < branches_; ++b) gain += in_stream(from, b) / terms_below(b);
    return gain;
  }

  Product product_of(const plan::Step& step) const {
    Product product;
    const auto see = [&](std::string_view name, int mantissa_bits) {
      const double u = rounding_error(std::min(mantissa_bits, traits(Scalar::bf16).mantissa_bits));
      product.squares += u * u;
      if (u > product.coarsest) product.coarsest = u, product.format = name;
    };
    const auto see_factor = [&](const Factor& f) {
      f.parts == 1 ? see(name(f.format), traits(f.format).mantissa_bits)
                   : see(name(Scalar::bf16), traits(Scalar::bf16).mantissa_bits);
    };
    if (step.factors.empty()) return product;
    for (const plan::Operand& o : step.inputs) {
      if (o.factors.empty()) continue;
      const plan::Buffer& b = p_.buffer(o.buffer);
      // 4 bits of a block err like e2m1, 8 bits like a format with 6 bits of mantissa.
      if (const WeightFormat served = b.served.format; served != WeightFormat::none)
        see(name(served), served == WeightFormat::q8_0 ? 6 : 1);
      if (b.scaled && b.scaled->blocks) {
        const BlockTraits& blocks = traits(*b.scaled->blocks);
        see(blocks.name, blocks.mantissa_bits);
      } else if (b.scaled) {
        see(name(b.type), traits(b.type).mantissa_bits);
      } else {
        see_factor(o.operand);
      }
    }
    if (!step.op->made_factors.empty()) see_factor(step.compute);
    return product;
  }

  /// Returns the steps on whose results `buffer` depends.
  std::vector<bool> ancestors(plan::BufferId buffer) const {
    std::vector<bool> reached(p_.steps.size()), seen(p_.buffers.size());
    std::vector<plan::BufferId> open = {buffer};
    while (!open.empty()) {
      const plan::BufferId next = open.back();
      open.pop_back();
      if (next == plan::kNoBuffer || seen[whole(next)]) continue;
      seen[whole(next)] = true;
      for (const std::size_t s : writers_[whole(next)]) {
        if (reached[s]) continue;
        reached[s] = true;
        const plan::Step& step = p_.steps[s];
        for (const plan::Operand& in : step.inputs) open.push_back(in.buffer);
        open.push_back(step.addend);
      }
    }
    return reached;
  }

  const plan::Program& p_;
  std::vector<std::vector<std::size_t>> writers_;  // by buffer
  std::vector<Product> products_;                  // by step
  std::size_t branches_ = 0;
};

}  // namespace

double ExpectedError::error(double amplification) const {
  return std::sqrt(squares + amplification * amplification * of_logits);
}

double amplification_of_logits(double loss, std::int64_t vocabulary) {
  if (!std::isfinite(loss)) return 1;
  if (vocabulary < 2) return 0;
  const double others = std::log(static_cast<double>(vocabulary - 1));
  const double p = std::min(std::exp(-loss), 1 - 0x1p-53);
  return p * std::max(0.0, others + std::log(p / (1 - p)));
}

double rounding_error(int mantissa_bits) {
  return std::ldexp(1.0, -mantissa_bits) / std::sqrt(18 / std::numbers::ln2);
}

std::map<std::string, ExpectedError> expected_gradient_errors(const plan::Program& program) {
  const Paths paths(program);
  std::map<std::string, ExpectedError> all;
  for (const plan::Slot& slot : program.slots) {
    if (slot.gradient != plan::kNoBuffer) all[slot.name] = paths.of(slot);
  }
  return all;
}

}  // namespace mantissa::lab
