// The measured rates of this machine.
#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>

#include "mantissa/cost/forecast.h"
#include "mantissa/kernels/peak.h"

namespace mantissa::cost {

Machine measure_machine(const runtime::Device& device, const plan::Program& program, int rests) {
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int, Scalar>, double> known;
  const std::scoped_lock lock(mutex);
  double& peak = known[{std::string(device.instructions()), device.host().threads, program.arithmetic}];
  const bool measured = peak > 0;
  const auto measure = [&] {
    if (!measured) peak = std::max(peak, kernels::measure_fma_peak(device.host(), program.arithmetic));
  };
  measure();
  // Use less memory than the run, so that measuring does not raise the peak.
  const std::size_t bytes = program.memory.arena() + program.memory.weights();
  const double bandwidth = kernels::measure_bandwidth(device.host(), bytes / 2);
  measure();
  for (int rest = 0; rest < rests && !measured; ++rest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    measure();
  }
  return {peak, bandwidth};
}

}  // namespace mantissa::cost
