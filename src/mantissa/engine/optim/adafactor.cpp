// Adafactor (Shazeer and Stern, 2018), as torch.optim.Adafactor. With ρ = min(lr, 1/√t), β = t^beta2_decay
// and ε₁ the distance from 1 to the next number of the arithmetic: a vector keeps v = v + (g² − v)·β, and so
// do the weights of experts, [experts, out, in]; a matrix keeps the means of v over its rows, r, and its
// columns, c, and v = r·c / max(mean(r), ε₁). u = g / √max(v, ε₁²); w = w·(1 − lr·decay) − u·ρ·max(eps,
// RMS(w)) / max(1, RMS(u) / clip_threshold).
#include <algorithm>
#include <cmath>

#include "mantissa/engine/optim/parameter_update.h"
#include "mantissa/engine/optim/rules.h"

namespace mantissa::optim {
namespace {

using graph::ValueId;
using kernels::Over;
using Reg = Sweep::Reg;

class Adafactor {
 public:
  explicit Adafactor(ParameterUpdate& p) : p_(p) {
    const double decay = p.real("beta2_decay");
    share_ = p.number("share",
                      [decay](const Progress& now) { return std::pow(static_cast<double>(now.t), decay); });
    least_ = p.number("eps1", [](const Progress& now) { return 2 * unit_roundoff(now.arithmetic); });
    least_square_ = p.number("eps1^2", [](const Progress& now) {
      return 2 * unit_roundoff(now.arithmetic) * (2 * unit_roundoff(now.arithmetic));
    });
    p.shape().rank() == 2 ? factor() : keep_all();
  }

  void run() {
    const ValueId size = [&] {
      Sweep s(p_);
      return s.root_mean_square(s.weight());
    }();
    const ValueId step = [&] {
      Sweep s(p_);
      return s.root_mean_square(direction(s));
    }();
    const double scale = p_.parameter().lr_scale;
    const auto rate = p_.number("rate", [scale](const Progress& now) {
      return std::min(now.lr * scale, 1 / std::sqrt(static_cast<double>(now.t)));
    });
    const auto fixed = [&](std::string_view key) {
      return p_.number(key, [x = p_.real(key)](const Progress&) { return x; });
    };
    const auto one = p_.number("one", [](const Progress&) { return 1.0; });
    Sweep s(p_);
    const Reg alpha = s.mul(s.max(s.read(size), s.read(fixed("eps"))), s.read(rate));
    const Reg clip = s.max(s.div(s.read(step), s.read(fixed("clip_threshold"))), s.read(one));
    s.move_weight(s.mul(direction(s), s.div(alpha, clip)));
    s.done();
  }

 private:
  /// Returns the new value of a state of `shape`; `seen` is this step's value.
  ValueId moved(std::string_view kind, const Shape& shape, ValueId seen) {
    const ValueId state = p_.state(kind, shape);
    Sweep s(p_);
    const Reg next = s.lerp(s.read(state), s.read(seen), s.read(share_));
    s.make(next, shape, kind);
    s.write(state, next);
    return s.done().front();
  }

  ValueId mean_square(Over over) {
    Sweep s(p_);
    return s.mean_square(s.gradient(), over);
  }

  void factor() {
    const std::int64_t rows = p_.shape().leading(), columns = p_.shape().last();
    rows_ = moved("row_moment", Shape{rows, 1}, mean_square(Over::each_row));
    columns_ = moved("column_moment", Shape{columns}, mean_square(Over::each_column));
    Sweep s(p_);
    mean_ = s.mean(s.read(rows_), Over::all);
  }

  void keep_all() {
    const ValueId state = p_.squares("second_moment");
    Sweep s(p_);
    const Reg g = s.gradient(), next = s.lerp(s.read(state), s.mul(g, g), s.read(share_));
    s.make(next, p_.shape(), "second_moment");
    s.write(state, next);
    whole_ = s.done().front();
  }

  /// Returns u.
  Reg direction(Sweep& s) {
    const Reg g = s.gradient();
    const Reg estimate = whole_ != graph::kNone ? s.read(whole_)
                                                : s.div(s.mul(s.read(rows_), s.read(columns_)),
                                                        s.max(s.read(mean_), s.read(least_)));
    return s.mul(s.rsqrt(s.max(estimate, s.read(least_square_))), g);
  }

  ParameterUpdate& p_;
  ValueId share_ = graph::kNone, least_ = graph::kNone, least_square_ = graph::kNone;
  ValueId rows_ = graph::kNone, columns_ = graph::kNone, mean_ = graph::kNone;  // for a matrix
  ValueId whole_ = graph::kNone;                                                // for a vector
};

void update(ParameterUpdate& p) {
  Adafactor(p).run();
}

}  // namespace

const Optimizer kAdafactor = {
    .name = "adafactor",
    .title = "Adafactor",
    .doc = "factored second moments of matrices, steps relative to the size of the weights",
    .settings = {{"beta2_decay", -0.8, "exponent of t in the decay of the second moments", -10, 0},
                 {"eps", 1e-3, "smallest weight size for relative steps", 0,
                  std::numeric_limits<double>::infinity(), true},
                 {"clip_threshold", 1.0, "largest root mean square of an unscaled step", 1},
                 {"weight_decay", 0.0,
                  "decoupled, multiplied by the learning rate, on tensors of two or more dimensions", 0}},
    .update = update,
};

}  // namespace mantissa::optim
