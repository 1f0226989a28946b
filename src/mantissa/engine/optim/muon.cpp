// Muon (Jordan et al., 2024), as torch.optim.Muon: the Newton–Schulz iteration makes the momentum of a hidden
// layer's matrix nearly orthogonal. m = m + (g − m)·(1 − momentum); u = g + (m − g)·momentum, or without
// nesterov m; X = u / max(‖u‖, 1e-7); then ns_steps times A = X·Xᵀ, X = a·X + (b·A + c·A·A)·X; w = w·(1 −
// lr·decay) − X·lr·√max(1, rows / columns). For a matrix with more rows than columns, A = Xᵀ·X multiplies
// from the right, which is equivalent for the transpose. AdamW updates all other parameters.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

using graph::ValueId;

constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;  // of the iteration
constexpr double kLeastNorm = 1e-7;

class Muon {
 public:
  explicit Muon(ParameterUpdate& p) : p_(p), tall_(p.shape().dim(0).size > p.shape().last()) {}

  void run() {
    ValueId x = normalized(direction());
    for (std::int64_t i = 0; i < p_.whole("ns_steps"); ++i) x = iterated(x);
    const double rows = static_cast<double>(p_.shape().dim(0).size),
                 columns = static_cast<double>(p_.shape().last());
    const double scale = p_.parameter().lr_scale * std::sqrt(std::max(1.0, rows / columns));
    Sweep s(p_);
    const ValueId rate =
        p_.number(fmt::format("lr*{}", scale), [scale](const Progress& now) { return now.lr * scale; });
    s.move_weight(s.mul(s.read(x), s.read(rate)));
    s.done();
  }

 private:
  ValueId fixed(std::string_view name, double x) {
    return p_.number(name, [x](const Progress&) { return x; });
  }

  /// Updates the momentum and returns the direction.
  ValueId direction() {
    const double momentum = p_.real("momentum");
    const ValueId state = p_.state("momentum");
    Sweep s(p_);
    const auto g = s.gradient();
    const auto m = s.lerp(s.read(state), g, s.read(fixed("1-momentum", 1 - momentum)));
    s.make(p_.flag("nesterov") ? s.lerp(g, m, s.read(fixed("momentum", momentum))) : m, p_.shape(),
           "direction");
    s.write(state, m);
    return s.done().front();
  }

  ValueId normalized(ValueId u) {
    Sweep terms(p_);
    const ValueId norm = terms.norm(terms.read(u));
    Sweep s(p_);
    s.make(s.div(s.read(u), s.max(s.read(norm), s.read(fixed("least_norm", kLeastNorm)))), p_.shape(),
           "normalized");
    return s.done().front();
  }

  /// Returns a·X + P(A)·X with P(A) = b·A + c·A·A.
  ValueId iterated(ValueId x) {
    const std::int64_t side = std::min(p_.shape().dim(0).size, p_.shape().last());
    const ValueId a = p_.product(x, x, tall_, !tall_);
    const ValueId squared = p_.product(a, a, false, false);
    Sweep polynomial(p_);
    polynomial.make(polynomial.add(polynomial.mul(polynomial.read(a), polynomial.read(fixed("b", kB))),
                                   polynomial.mul(polynomial.read(squared), polynomial.read(fixed("c", kC)))),
                    Shape{side, side}, "polynomial");
    const ValueId b = polynomial.done().front();
    const ValueId product = tall_ ? p_.product(x, b, false, false) : p_.product(b, x, false, false);
    Sweep s(p_);
    s.make(s.add(s.mul(s.read(x), s.read(fixed("a", kA))), s.read(product)), p_.shape(), "iterated");
    return s.done().front();
  }

  ParameterUpdate& p_;
  const bool tall_;
};

void update(ParameterUpdate& p) {
  p.parameter().hidden_matrix ? Muon(p).run() : update_by_adamw(p);
}

}  // namespace

const Optimizer kMuon = {
    .name = "muon",
    .title = "Muon",
    .doc =
        "orthogonalized momentum for matrices of hidden layers, AdamW for all other parameters at the same "
        "rate",
    .settings = {{"momentum", 0.95, "decay of the momentum", 0, 1, false, true},
                 {"nesterov", true, "Nesterov momentum"},
                 {"ns_steps", std::int64_t{5}, "steps of the Newton–Schulz iteration", 1, 99},
                 {"betas", std::array{0.9, 0.95}, "AdamW: decay of the first and second moment", 0, 1, false,
                  true},
                 {"eps", 1e-8, "AdamW: added to the root of the second moment, after the bias correction", 0,
                  std::numeric_limits<double>::infinity(), true},
                 {"weight_decay", 0.1,
                  "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .update = update,
};

}  // namespace mantissa::optim
