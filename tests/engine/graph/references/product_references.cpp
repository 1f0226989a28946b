#include <algorithm>

#include "engine/graph/references/references.h"
#include "kernels/reference/gemm.h"
#include "kernels/reference/head.h"

namespace mantissa::graph::testing {
namespace {

using kernels::Gemm;
using kernels::GemmOperand;

bool is_transposed(const Attributes& a) {
  return a.flag("transposed");
}

/// Computes C of the product g with operands `a` and `b` in double.
void product_of(const ReferenceCall& c, Gemm g, const ReferenceOperand& a, bool a_transposed,
                const ReferenceOperand& b, bool b_transposed) {
  g.a = GemmOperand{{a.data(), Scalar::f64, a.width}, Scalar::f64, a_transposed};
  g.b = GemmOperand{{b.data(), Scalar::f64, b.width}, Scalar::f64, b_transposed};
  g.c = {c.outputs[0].data(), Scalar::f64, c.outputs[0].width};
  g.m = c.outputs[0].rows;
  g.n = c.outputs[0].width;
  c.outputs[0].values = kernels::reference::gemm(g).c;
}

void rows_times_weight(const ReferenceCall& c, bool transpose) {
  Gemm g;
  g.k = c.inputs[0].width;
  if (c.inputs.size() > 2) {
    g.bias = c.inputs[2].data();
    g.bias_type = Scalar::f64;
  }
  product_of(c, g, c.inputs[0], false, c.inputs[1], transpose);
}

void matmul(const ReferenceCall& c) {
  rows_times_weight(c, !is_transposed(c.attributes));
}

void matmul_dx(const ReferenceCall& c) {
  rows_times_weight(c, is_transposed(c.attributes));
}

void matmul_dw(const ReferenceCall& c) {
  const std::size_t rows =
      is_transposed(c.attributes) ? 1 : 0;  // the input whose features are the rows of dW
  Gemm g;
  g.k = c.inputs[0].rows;
  g.rows = c.extent.rows;
  product_of(c, g, c.inputs[rows], true, c.inputs[1 - rows], false);
}

void matmul_product(const ReferenceCall& c) {
  const bool a_transposed = c.attributes.flag("transpose_a");
  Gemm g;
  g.k = a_transposed ? c.inputs[0].rows : c.inputs[0].width;
  product_of(c, g, c.inputs[0], a_transposed, c.inputs[1], c.attributes.flag("transpose_b"));
}

kernels::reference::Head head_of(const ReferenceCall& c, const std::vector<std::int32_t>& ids) {
  return {c.inputs[0].rows,
          c.inputs[0].width,
          c.inputs[1].rows,
          c.inputs[0].data(),
          c.inputs[1].data(),
          ids.data(),
          c.attributes.number("soft_cap", 0.0),
          c.attributes.number("l2wrap", 0.0),
          c.attributes.number("z_loss", 0.0)};
}

std::vector<std::int32_t> ids_of(const ReferenceOperand& ids) {
  return {ids.values.begin(), ids.values.end()};
}

void log_prob(const ReferenceCall& c) {
  const std::vector<std::int32_t> ids = ids_of(c.inputs[2]);
  kernels::reference::log_prob(head_of(c, ids), c.outputs[0].data(), c.outputs[1].data(),
                               c.outputs.size() > 2 ? c.outputs[2].data() : nullptr);
}

/// Computes the wanted ones of dx and dweight, which are the first outputs.
void log_prob_backward(const ReferenceCall& c, const std::vector<std::int32_t>& ids, const double* lse,
                       const kernels::reference::HeadSeeds& seeds) {
  const bool dx = !c.attributes.flag("frozen_input"), dweight = !c.attributes.flag("frozen_weight");
  std::vector<double> unwanted(
      static_cast<std::size_t>(std::max(c.inputs[0].rows, c.inputs[1].rows) * c.inputs[0].width));
  kernels::reference::log_prob_backward(head_of(c, ids), lse, seeds,
                                        dx ? c.outputs[0].data() : unwanted.data(),
                                        dweight ? c.outputs[dx ? 1 : 0].data() : unwanted.data());
}

void log_prob_grad(const ReferenceCall& c) {
  const std::vector<std::int32_t> ids = ids_of(c.inputs[2]);
  kernels::reference::HeadSeeds seeds{c.inputs[4].data()};
  if (c.attributes.flag("entropy")) {
    seeds.entropy = c.inputs[5].data();
    seeds.dentropy = c.inputs[6].data();
  }
  log_prob_backward(c, ids, c.inputs[3].data(), seeds);
}

void log_prob_training(const ReferenceCall& c) {
  const std::vector<std::int32_t> ids = ids_of(c.inputs[2]);
  double* lse = c.outputs.back().data();
  kernels::reference::log_prob(head_of(c, ids), c.outputs[c.outputs.size() - 2].data(), lse, nullptr);
  log_prob_backward(c, ids, lse, {c.inputs[3].data()});
}

}  // namespace

std::span<const NamedReference> product_references() {
  static constexpr NamedReference kAll[] = {
      {"matmul", matmul},
      {"matmul.dx", matmul_dx},
      {"matmul.dw", matmul_dw},
      {"matmul.product", matmul_product},
      {"log_prob", log_prob},
      {"log_prob.grad", log_prob_grad},
      {"log_prob.training", log_prob_training},
  };
  return kAll;
}

}  // namespace mantissa::graph::testing
