// Attention of a row that ranks share, against the same attention by one rank with the threads of all:
// forward and backward, with the bytes that each rank sends. The ranks are threads of this process, so that
// transfers are copies in memory. Medians of alternating runs.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "bench.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/tensor/row_blocks.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/comm/thread_ranks.h"
#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ring_attention.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/train/steps/key_ring.h"

namespace {

using namespace mantissa;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr std::int64_t kHeads = 8, kKvHeads = 4, kHeadDim = 64;
constexpr std::int64_t kWidth = kHeads * kHeadDim, kKvWidth = kKvHeads * kHeadDim;
constexpr int kRuns = 7;

/// Attention of some tokens and its gradient, in bf16.
class Attention {
 public:
  Attention(std::int64_t tokens, std::vector<Segment> segments, int threads)
      : segments_(std::move(segments)), extent_{tokens, {}, segments_} {
    const auto add = [&](Scalar type, std::int64_t width) {
      const auto count = static_cast<std::size_t>(tokens * width);
      Storage& storage = memory_.emplace_back(count * bytes_of(type));
      std::mt19937 random(static_cast<unsigned>(memory_.size()));
      std::normal_distribution<float> normal;
      std::vector<float> values(count);
      for (float& x : values) x = normal(random);
      store_row(values.data(), count, storage.data(), type, 0);
      graph::Argument a;
      a.data = storage.data();
      a.type = type;
      a.rows = tokens;
      a.width = width;
      return a;
    };
    const graph::Argument q = add(Scalar::bf16, kWidth), k = add(Scalar::bf16, kKvWidth),
                          v = add(Scalar::bf16, kKvWidth), out = add(Scalar::bf16, kWidth),
                          lse = add(Scalar::f32, kHeads), dout = add(Scalar::bf16, kWidth);
    forward_ = {{q, k, v}, {out, lse}};
    backward_ = {{q, k, v, out, lse, dout},
                 {add(Scalar::f32, kWidth), add(Scalar::f32, kKvWidth), add(Scalar::f32, kKvWidth)}};
    const kernels::AttentionShape shape{kHeads, kKvHeads, kHeadDim};
    ctx_.simd = kernels::best_simd();
    ctx_.threads = threads;
    const std::size_t bytes =
        aligned(kernels::attention_workspace(ctx_, shape, tokens, tokens, Scalar::f32) +
                kernels::attention_backward_workspace(ctx_, shape, tokens, tokens, Scalar::f32)) +
        graph::ring_backward_workspace(shape, tokens, Scalar::f32, Scalar::bf16, Scalar::bf16);
    workspace_ = Storage(bytes);
    ctx_.workspace = workspace_.data();
    ctx_.workspace_bytes = bytes;
  }

  void forward(graph::KeyRing* ring) { run("attention", forward_, ring); }
  void backward(graph::KeyRing* ring) { run("attention.grad", backward_, ring); }

 private:
  struct Operands {
    std::vector<graph::Argument> inputs, outputs;
  };

  void run(const char* op, const Operands& o, graph::KeyRing* ring) const {
    const graph::Attributes attributes = {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"head_dim", kHeadDim}};
    graph::Call call{ctx_, extent_, o.inputs, o.outputs, attributes};
    call.compute = Scalar::bf16;
    call.accumulator.order = SumOrder::tile;
    call.ring = ring;
    graph::find_op(op).run(call);
  }

  std::vector<Segment> segments_;
  Extent extent_;
  std::vector<Storage> memory_;
  Operands forward_, backward_;
  Storage workspace_;
  kernels::Context ctx_;
};

struct Seconds {
  std::vector<double> forward, backward;
};

/// Runs both on all ranks at the same time.
double on_ranks(int ranks, std::int64_t length, int threads, Seconds& seconds) {
  const std::vector<train::SharedRow> rows = {{length, {}}};
  std::barrier together(ranks);
  double sent = 0;
  std::vector<std::jthread> all;
  for (std::unique_ptr<comm::Transport>& transport : comm::thread_ranks(ranks)) {
    all.emplace_back([&, transport = std::move(transport)]() mutable {
      comm::Communicator communicator(std::move(transport));
      train::KeyRing ring(communicator, ranks);
      ring.set_rows(rows);
      const std::int64_t early = block_of(length, ring.early(), ring.blocks()).count(),
                         late = block_of(length, ring.late(), ring.blocks()).count();
      Attention own(early + late, {{0, early}, {early, late}}, threads);
      const auto measure = [&](std::vector<double>& to, const std::function<void()>& body) {
        together.arrive_and_wait();
        const double taken = bench::seconds([&] {
          body();
          together.arrive_and_wait();
        });
        if (communicator.leads()) to.push_back(taken);
      };
      own.forward(&ring);
      for (int run = 0; run < kRuns; ++run) {
        measure(seconds.forward, [&] { own.forward(&ring); });
        measure(seconds.backward, [&] { own.backward(&ring); });
      }
      if (communicator.leads()) sent = static_cast<double>(communicator.sent_bytes()) / (kRuns + 0.5);
      communicator.leave(comm::Ending::done);
    });
  }
  all.clear();
  return sent;
}

void measure(int ranks, std::int64_t length, int threads) {
  Seconds whole, shared;
  Attention one(length, {{0, length}}, threads);
  one.forward(nullptr);
  for (int run = 0; run < kRuns; ++run) {
    whole.forward.push_back(bench::seconds([&] { one.forward(nullptr); }));
    whole.backward.push_back(bench::seconds([&] { one.backward(nullptr); }));
  }
  const double sent = on_ranks(ranks, length, std::max(1, threads / ranks), shared);
  const double f1 = bench::median(whole.forward), f2 = bench::median(shared.forward),
               b1 = bench::median(whole.backward), b2 = bench::median(shared.backward);
  fmt::print("{:6} {:5} {:9.1f} {:9.1f} {:6.2f} {:9.1f} {:9.1f} {:6.2f} {:9.1f}\n", length, ranks, 1e3 * f1,
             1e3 * f2, f1 / f2, 1e3 * b1, 1e3 * b2, b1 / b2, sent / 1e6);
}

}  // namespace

int main() {
  const int threads = bench::context().threads;
  fmt::print(
      "{} threads in all, {} query heads, {} key heads of {}, bf16 in tile order; ms, ratio of speeds, MB that "
      "rank 0 sends\n"
      "length ranks   forward    shared  ratio  backward    shared  ratio      sent\n",
      threads, kHeads, kKvHeads, kHeadDim);
  for (const std::int64_t length : {1024, 4096, 16384}) {
    for (int ranks = 2; ranks <= threads; ranks *= 2) measure(ranks, length, threads);
  }
}
