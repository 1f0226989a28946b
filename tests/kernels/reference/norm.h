// Reference for RMSNorm and its gradients by their formulas, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// y[t] = x[t] / √(mean(x[t]²) + eps) ∘ (gain_offset + gain). x, y: [tokens, channels]; gain: [channels];
/// rstd: [tokens]; dense. A norm over heads has tokens · heads tokens.
void rmsnorm(std::int64_t tokens, std::int64_t channels, double eps, const double* x, const double* gain,
             double* y, double* rstd, double gain_offset = 0);

/// dx[t] = rstd·(g − x̂ · mean(g ∘ x̂)), g = dy ∘ (gain_offset + gain), x̂ = x·rstd.
void rmsnorm_backward(std::int64_t tokens, std::int64_t channels, const double* x, const double* gain,
                      const double* rstd, const double* dy, double* dx, double gain_offset = 0);

/// dgain = Σ_t dy[t] ∘ x[t]·rstd[t].
void rmsnorm_gain(std::int64_t tokens, std::int64_t channels, const double* x, const double* rstd,
                  const double* dy, double* dgain);

}  // namespace mantissa::kernels::reference
