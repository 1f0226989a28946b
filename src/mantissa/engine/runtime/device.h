// Devices: memory and kernels. The rooms above this one access both only through a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/graph/graph.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/kernels/context.h"

namespace mantissa::runtime {

/// A processor with its memory. Immutable; shared by all sessions and weight sets on it. All calls are
/// synchronous.
class Device {
 public:
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Returns the instruction set of its kernels: "avx512".
  virtual std::string_view instructions() const = 0;

  /// Returns zeroed memory of the device. Throws ResourceError if there is not enough.
  virtual Storage allocate(std::size_t bytes) const = 0;
  /// Copies from the host's memory to the device's, back, and within it. The ranges must not overlap.
  virtual void upload(std::byte* to, std::span<const std::byte> from) const = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) const = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) const = 0;
  /// Returns the address at which the host can write to `memory`, or null if it must upload.
  virtual std::byte* host_pointer(std::byte* memory) const = 0;
  /// Returns `bytes` bytes at `from` in the host's memory: the memory itself if the host can read it, else a
  /// copy in `staging`.
  virtual std::span<const std::byte> view(const std::byte* from, std::size_t bytes,
                                          std::vector<std::byte>& staging) const = 0;

  /// Runs the device's kernel for `op`. call.ctx holds the scratch memory.
  virtual void run(const graph::OpDef& op, const graph::Call& call) const = 0;
  /// Runs the products of calls of `op` that do not read each other's results (OpDef::product).
  virtual void run_together(const graph::OpDef& op, std::span<const graph::Call> calls) const = 0;
  /// Returns true if all `count` elements of `values`, in the device's memory, are finite.
  virtual bool all_finite(ConstMatrix values, std::int64_t count) const = 0;

  /// Returns the context of kernels that run in the host's memory, where files are converted.
  const kernels::Context& host() const { return host_; }
  /// Returns a context that runs on the calling thread, for the body of parallel_for().
  const kernels::Context& serial() const { return serial_; }
  /// Calls body(index, thread) for index in [0, count) on the threads of the host.
  void parallel_for(std::int64_t count, const std::function<void(std::int64_t, int)>& body) const {
    kernels::parallel_for(host_, count, body);
  }

 protected:
  explicit Device(const kernels::Context& host) : host_(host), serial_{.simd = host.simd} {}

 private:
  kernels::Context host_, serial_;
};

/// Returns the processor that this process runs on, with the instruction set and threads of `context`.
std::shared_ptr<const Device> cpu(const kernels::Context& context);

/// The values of --device, --simd and --threads.
struct DeviceOptions {
  std::string name = "cpu";
  std::string instructions = {};  // empty: the best of this machine
  std::int64_t threads = 0;       // 0: all cores
  int processes = 1;              // that share the cores, unless each is bound to its own
};
/// Returns the requested device. Throws ConfigError for a device or an instruction set that this machine
/// lacks, and for a number of threads outside [0, 1024].
std::shared_ptr<const Device> open_device(const DeviceOptions& options);

/// Compiles `graph` for `device` (engine/plan/compile.h).
std::shared_ptr<const plan::Program> compile(const graph::Graph& graph, const precision::Policy& policy,
                                             const plan::CompileOptions& options, const Device& device);

}  // namespace mantissa::runtime
