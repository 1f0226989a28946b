#include "mantissa/runtime/device.h"

#include <algorithm>
#include <cstring>

#include "mantissa/kernels/update.h"

namespace mantissa::runtime {
namespace {

class Cpu final : public Device {
 public:
  explicit Cpu(const kernels::Context& context) : Device(context) {}

  std::string_view name() const override { return "cpu"; }
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
  bool all_finite(ConstMatrix values, std::int64_t count) const override {
    return kernels::gradient_norm(host(), values.data, values.type, count).finite;
  }
};

}  // namespace

std::shared_ptr<const Device> cpu(const kernels::Context& context) {
  return std::make_shared<Cpu>(context);
}

std::shared_ptr<const plan::Program> compile(const graph::Graph& graph, const precision::Policy& policy,
                                             const plan::CompileOptions& options, const Device& device) {
  return std::make_shared<const plan::Program>(plan::compile(graph, policy, options, device.host()));
}

}  // namespace mantissa::runtime
