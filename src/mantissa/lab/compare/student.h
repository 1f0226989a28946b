// Student's distribution, for differences whose standard error is itself an estimate.
#pragma once

namespace mantissa::lab {

/// Returns the probability that a value of Student's distribution with `degrees` > 0 degrees of freedom,
/// which need not be whole, has a magnitude of at least |t|.
double student_tail(double t, double degrees);

/// Returns the magnitude that is reached with probability `tail`, in (0, 1).
double student_limit(double tail, double degrees);

}  // namespace mantissa::lab
