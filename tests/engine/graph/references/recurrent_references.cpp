#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/graph/references/references.h"
#include "kernels/reference/recurrence.h"

namespace mantissa::graph::testing {
namespace {

using kernels::reference::Recurrence;

Recurrence recurrence_of(const ReferenceCall& c) {
  Recurrence r;
  r.shape = {c.attributes.integer("heads"), c.attributes.integer("key_dim"),
             c.attributes.integer("value_dim")};
  const double** const inputs[] = {&r.r, &r.decay, &r.k, &r.v, &r.alpha, &r.beta};
  for (std::size_t i = 0; i < std::size(inputs); ++i) *inputs[i] = c.inputs[i].data();
  return r;
}

void recurrence(const ReferenceCall& c) {
  Recurrence r = recurrence_of(c);
  if (c.attributes.flag("initial")) r.initial = c.inputs[6].data();
  kernels::reference::recurrence(c.extent, r, c.outputs[0].data());
}

void recurrence_grad(const ReferenceCall& c) {
  Recurrence r = recurrence_of(c);
  kernels::reference::RecurrenceGradients to{c.outputs[0].data(), c.outputs[1].data(), c.outputs[2].data(),
                                             c.outputs[3].data(), c.outputs[4].data(), c.outputs[5].data()};
  if (c.attributes.flag("initial")) r.initial = c.inputs[7].data();
  if (c.attributes.flag("trains_initial")) to.dinitial = c.outputs[6].data();
  if (!c.attributes.flag("carries"))
    return kernels::reference::recurrence_backward(c.extent, r, c.inputs[6].data(), to);
  for (const Segment& segment : c.extent.segments) {  // each continues the state of its slot
    r.initial = c.inputs[7].data() + segment.slot * r.shape.state();
    const Extent own{c.extent.tokens, {}, {&segment, 1}};
    kernels::reference::recurrence_backward(own, r, c.inputs[6].data(), to);
  }
}

/// Each segment continues a state, and leaves another.
void recurrence_carry(const ReferenceCall& c) {
  Recurrence r = recurrence_of(c);
  for (const Segment& segment : c.extent.segments) {
    r.initial = c.inputs[7].data() + segment.slot * r.shape.state();
    const Extent own{c.extent.tokens, {}, {&segment, 1}};
    kernels::reference::recurrence(own, r, c.outputs[1].data(),
                                   c.outputs[0].data() + segment.slot * r.shape.state());
  }
}

/// Each segment continues the state of its slot.
void recurrence_decode(const ReferenceCall& c) {
  Recurrence r = recurrence_of(c);
  for (const Segment& segment : c.extent.segments) {
    double* const state = c.outputs[0].data() + segment.slot * r.shape.state();
    const std::vector<double> first(state, state + r.shape.state());
    r.initial = first.data();
    const Extent own{c.extent.tokens, {}, {&segment, 1}};
    kernels::reference::recurrence(own, r, c.outputs[1].data(), state);
  }
}

/// The elements of token `t`, of its predecessor in its segment, and of a mixture.
struct Shifted {
  const ReferenceCall& c;
  std::size_t first;  // input with the coefficients of the first mixture
  const ReferenceOperand* state = nullptr;

  double before(const Segment& s, std::int64_t t, std::int64_t i) const {
    const ReferenceOperand& x = c.inputs[0];
    if (t > s.begin) return x.values[static_cast<std::size_t>((t - 1) * x.width + i)];
    return state == nullptr ? 0 : state->values[static_cast<std::size_t>(s.slot * x.width + i)];
  }
};

void shift(const ReferenceCall& c, const Shifted& shifted, std::size_t outputs) {
  const ReferenceOperand& x = c.inputs[0];
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = s.begin; t < s.begin + s.length; ++t) {
      for (std::int64_t i = 0; i < x.width; ++i) {
        const auto at = static_cast<std::size_t>(t * x.width + i);
        const double step = shifted.before(s, t, i) - x.values[at];
        for (std::size_t j = 0; j + shifted.first < c.inputs.size(); ++j) {
          const double mix = c.inputs[shifted.first + j].values[static_cast<std::size_t>(i)];
          c.outputs[outputs + j].values[at] = x.values[at] + step * mix;
        }
      }
    }
  }
}

void token_shift(const ReferenceCall& c) {
  shift(c, {c, 1}, 0);
}

/// `before` is the input with the tokens before the segments, and the last one before the coefficients.
void token_shift_after(const ReferenceCall& c, std::size_t before) {
  const ReferenceOperand& x = c.inputs[0];
  shift(c, {c, before + 1, &c.inputs[before]}, 1);
  for (const Segment& s : c.extent.segments) {
    const auto last = x.values.begin() + (s.begin + s.length - 1) * x.width;
    std::copy(last, last + x.width, c.outputs[0].values.begin() + s.slot * x.width);
  }
}

void token_shift_decode(const ReferenceCall& c) {
  token_shift_after(c, 1);
}

void token_shift_carry(const ReferenceCall& c) {
  token_shift_after(c, 2);
}

void token_shift_dx(const ReferenceCall& c) {
  const std::size_t count = c.inputs.size() / 2;
  const std::int64_t width = c.outputs[0].width;
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = s.begin; t < s.begin + s.length; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < count; ++j) {
          const double mix = c.inputs[j].values[static_cast<std::size_t>(i)];
          const std::vector<double>& dy = c.inputs[count + j].values;
          sum += dy[static_cast<std::size_t>(t * width + i)] * (1 - mix);
          if (t + 1 < s.begin + s.length) sum += dy[static_cast<std::size_t>((t + 1) * width + i)] * mix;
        }
        c.outputs[0].values[static_cast<std::size_t>(t * width + i)] = sum;
      }
    }
  }
}

void token_shift_dmix(const ReferenceCall& c) {
  const ReferenceOperand &x = c.inputs[0], &dy = c.inputs[1];
  std::ranges::fill(c.outputs[0].values, 0);
  const Shifted shifted{c, 1, c.inputs.size() > 2 ? &c.inputs[2] : nullptr};
  for (const Segment& s : c.extent.segments) {
    for (std::int64_t t = s.begin; t < s.begin + s.length; ++t) {
      for (std::int64_t i = 0; i < x.width; ++i) {
        const auto at = static_cast<std::size_t>(t * x.width + i);
        c.outputs[0].values[static_cast<std::size_t>(i)] +=
            dy.values[at] * (shifted.before(s, t, i) - x.values[at]);
      }
    }
  }
}

/// Calls f(first element of the head in a token's row, the same in its vectors, index of the head's numbers).
template <class F>
void for_heads(const ReferenceCall& c, const F& f) {
  const std::int64_t heads = c.attributes.integer("heads"), width = c.inputs[0].width;
  for (std::int64_t t = 0; t < c.inputs[0].rows; ++t) {
    for (std::int64_t h = 0; h < heads; ++h)
      f(static_cast<std::size_t>(t * width + h * (width / heads)),
        static_cast<std::size_t>(h * (width / heads)), static_cast<std::size_t>(t * heads + h));
  }
}

std::size_t head_size(const ReferenceCall& c) {
  return static_cast<std::size_t>(c.inputs[0].width / c.attributes.integer("heads"));
}

void rwkv_keys(const ReferenceCall& c) {
  const auto &k = c.inputs[0].values, &a = c.inputs[1].values, &k_k = c.inputs[2].values,
             &k_a = c.inputs[3].values;
  for_heads(c, [&](std::size_t x, std::size_t p, std::size_t number) {
    double squares = 0;
    for (std::size_t i = 0; i < head_size(c); ++i) squares += std::pow(k[x + i] * k_k[p + i], 2);
    const double n = 1 / std::max(std::sqrt(squares), 1e-12);
    c.outputs[3].values[number] = n;
    for (std::size_t i = 0; i < head_size(c); ++i) {
      const double unit = k[x + i] * k_k[p + i] * n;
      c.outputs[0].values[x + i] = -unit;
      c.outputs[1].values[x + i] = unit * a[x + i];
      c.outputs[2].values[x + i] = k[x + i] * (1 + (a[x + i] - 1) * k_a[p + i]);
    }
  });
}

void rwkv_keys_grad(const ReferenceCall& c) {
  const auto in = [&](std::size_t i) -> const std::vector<double>& { return c.inputs[i].values; };
  for_heads(c, [&](std::size_t x, std::size_t p, std::size_t number) {
    const double n = in(4)[number];
    const auto unit = [&](std::size_t i) { return in(0)[x + i] * in(2)[p + i] * n; };
    const auto cotangent = [&](std::size_t i) { return in(1)[x + i] * in(6)[x + i] - in(5)[x + i]; };
    double pull = 0;
    for (std::size_t i = 0; i < head_size(c); ++i) pull += cotangent(i) * unit(i);
    for (std::size_t i = 0; i < head_size(c); ++i) {
      const double k = in(0)[x + i], less = in(1)[x + i] - 1, k_a = in(3)[p + i], dkey = in(7)[x + i];
      const double kappa = (cotangent(i) - unit(i) * pull) * n;
      c.outputs[0].values[x + i] = kappa * in(2)[p + i] + dkey * (1 + less * k_a);
      c.outputs[1].values[x + i] = unit(i) * in(6)[x + i] + dkey * k * k_a;
      c.outputs[2].values[x + i] = kappa * k;
      c.outputs[3].values[x + i] = dkey * k * less;
    }
  });
}

void rwkv_output(const ReferenceCall& c) {
  const auto in = [&](std::size_t i) -> const std::vector<double>& { return c.inputs[i].values; };
  const double size = static_cast<double>(head_size(c));
  for_heads(c, [&](std::size_t x, std::size_t p, std::size_t number) {
    double mean = 0, variance = 0, s = 0;
    for (std::size_t i = 0; i < head_size(c); ++i) mean += in(0)[x + i] / size;
    for (std::size_t i = 0; i < head_size(c); ++i) {
      variance += std::pow(in(0)[x + i] - mean, 2) / size;
      s += in(1)[x + i] * in(2)[x + i] * in(5)[p + i];
    }
    const double rstd = 1 / std::sqrt(variance + c.attributes.number("eps"));
    c.outputs[1].values[number] = mean;
    c.outputs[2].values[number] = rstd;
    c.outputs[3].values[number] = s;
    for (std::size_t i = 0; i < head_size(c); ++i) {
      const double normal = (in(0)[x + i] - mean) * rstd;
      c.outputs[0].values[x + i] = (normal * in(6)[p + i] + in(7)[p + i] + s * in(3)[x + i]) * in(4)[x + i];
    }
  });
}

void rwkv_output_grad(const ReferenceCall& c) {
  const auto in = [&](std::size_t i) -> const std::vector<double>& { return c.inputs[i].values; };
  const double size = static_cast<double>(head_size(c));
  for_heads(c, [&](std::size_t x, std::size_t p, std::size_t number) {
    const double mean = in(8)[number], rstd = in(9)[number], s = in(10)[number];
    const auto normal = [&](std::size_t i) { return (in(0)[x + i] - mean) * rstd; };
    const auto e = [&](std::size_t i) { return in(11)[x + i] * in(4)[x + i]; };
    double centre = 0, pull = 0, ds = 0;
    for (std::size_t i = 0; i < head_size(c); ++i) {
      centre += e(i) * in(6)[p + i] / size;
      pull += e(i) * in(6)[p + i] * normal(i) / size;
      ds += e(i) * in(3)[x + i];
    }
    for (std::size_t i = 0; i < head_size(c); ++i) {
      const double r = in(1)[x + i], key = in(2)[x + i], r_k = in(5)[p + i];
      const double results[] = {rstd * (e(i) * in(6)[p + i] - centre - normal(i) * pull),
                                ds * key * r_k,
                                ds * r * r_k,
                                e(i) * s,
                                in(11)[x + i] * (normal(i) * in(6)[p + i] + in(7)[p + i] + s * in(3)[x + i]),
                                ds * r * key,
                                e(i) * normal(i),
                                e(i)};
      for (std::size_t o = 0; o < std::size(results); ++o) c.outputs[o].values[x + i] = results[o];
    }
  });
}

}  // namespace

std::span<const NamedReference> recurrent_references() {
  static constexpr NamedReference kAll[] = {
      {"recurrence", recurrence},
      {"recurrence.grad", recurrence_grad},
      {"recurrence.decode", recurrence_decode},
      {"recurrence.carry", recurrence_carry},
      {"token_shift", token_shift},
      {"token_shift.decode", token_shift_decode},
      {"token_shift.carry", token_shift_carry},
      {"token_shift.dx", token_shift_dx},
      {"token_shift.dmix", token_shift_dmix},
      {"rwkv_keys", rwkv_keys},
      {"rwkv_keys.grad", rwkv_keys_grad},
      {"rwkv_output", rwkv_output},
      {"rwkv_output.grad", rwkv_output_grad},
  };
  return kAll;
}

}  // namespace mantissa::graph::testing
