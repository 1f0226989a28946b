// Reference for LayerNorm and its gradients by their formulas, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// y[t] = (x[t] − mean[t]) · rstd[t] ∘ gain + bias, rstd[t] = 1 / √(mean((x[t] − mean[t])²) + eps). x, y:
/// [tokens, channels]; gain, bias: [channels], bias may be null; mean, rstd: [tokens]; dense.
void layernorm(std::int64_t tokens, std::int64_t channels, double eps, const double* x, const double* gain,
               const double* bias, double* y, double* mean, double* rstd);

/// dx[t] = rstd·(g − mean(g) − x̂ · mean(g ∘ x̂)), g = dy ∘ gain, x̂ = (x − mean)·rstd.
void layernorm_backward(std::int64_t tokens, std::int64_t channels, const double* x, const double* gain,
                        const double* mean, const double* rstd, const double* dy, double* dx);

/// dgain = Σ_t dy[t] ∘ x̂[t].
void layernorm_gain(std::int64_t tokens, std::int64_t channels, const double* x, const double* mean,
                    const double* rstd, const double* dy, double* dgain);

}  // namespace mantissa::kernels::reference
