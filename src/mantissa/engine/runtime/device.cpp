#include "mantissa/engine/runtime/device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/thread_pool.h"
#include "mantissa/kernels/update.h"

namespace mantissa::runtime {
namespace {

class Cpu final : public Device {
 public:
  explicit Cpu(const kernels::Context& context) : Device(context) {}

  std::string_view instructions() const override { return kernels::name(host().simd); }

  Storage allocate(std::size_t bytes) const override { return Storage(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) const override { std::ranges::copy(from, to); }
  void download(std::span<std::byte> to, const std::byte* from) const override {
    std::copy_n(from, to.size(), to.begin());
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  std::byte* host_pointer(std::byte* memory) const override { return memory; }
  std::span<const std::byte> view(const std::byte* from, std::size_t bytes,
                                  std::vector<std::byte>& /*staging*/) const override {
    return {from, bytes};
  }

  void run(const graph::OpDef& op, const graph::Call& call) const override { op.run(call); }
  void run_together(const graph::OpDef& op, std::span<const graph::Call> calls) const override {
    std::vector<kernels::Gemm> products;
    for (const graph::Call& call : calls) products.push_back(op.product(call));
    kernels::gemm_together(calls.front().ctx, products);
  }
  bool all_finite(ConstMatrix values, std::int64_t count) const override {
    return kernels::gradient_norm(host(), values.data, values.type, count).finite;
  }
};

}  // namespace

std::shared_ptr<const Device> cpu(const kernels::Context& context) {
  return std::make_shared<Cpu>(context);
}

std::shared_ptr<const Device> open_device(const DeviceOptions& o) {
  if (o.name != "cpu") {
    throw ConfigError("--device {}: this build runs on the CPU; remove --device", o.name);
  }
  constexpr std::int64_t kMostThreads = 1024;
  if (o.threads < 0 || o.threads > kMostThreads) {
    throw ConfigError("--threads {}: must be between 1 and {}, or 0 for all cores", o.threads, kMostThreads);
  }
  kernels::Context host;
  host.simd = o.instructions.empty() ? kernels::best_simd() : kernels::parse_simd(o.instructions);
  const std::int64_t cores =
      std::max(1U, std::thread::hardware_concurrency());  // those this process is bound to
  const bool bound = cores < sysconf(_SC_NPROCESSORS_ONLN);
  const std::int64_t own = bound ? cores : std::max<std::int64_t>(1, cores / o.processes);
  host.threads = static_cast<int>(o.threads > 0 ? o.threads : own);
  host.pool = std::make_shared<kernels::ThreadPool>(host.threads);
  return cpu(host);
}

std::shared_ptr<const plan::Program> compile(const graph::Graph& graph, const precision::Policy& policy,
                                             const plan::CompileOptions& options, const Device& device) {
  return std::make_shared<const plan::Program>(plan::compile(graph, policy, options, device.host()));
}

}  // namespace mantissa::runtime
