// Trains a model on text in memory, reads the plan before the run, observes every step, and stops early.
// Build it against an installed Mantissa with the CMakeLists.txt in this folder.
#include <mantissa/api/error.h>
#include <mantissa/api/mantissa.h>

#include <cstdio>
#include <stop_token>
#include <string>
#include <vector>

namespace api = mantissa::api;

int main(int argc, char** argv) {
  const std::string out = argc > 1 ? argv[1] : "runs/from-memory";

  // The data: any token ids below the model's vocab_size, here the bytes of a repeated sentence.
  std::vector<std::int32_t> tokens;
  const std::string sentence = "The quick brown fox jumps over the lazy dog. ";
  while (tokens.size() < 20000) tokens.insert(tokens.end(), sentence.begin(), sentence.end());

  try {
    const api::Config config = api::Config::parse(R"(
      run = { steps = 60 }
      model = { hidden_size = 32, intermediate_size = 64, num_hidden_layers = 1, num_attention_heads = 2, vocab_size = 256 }
      data = { source = "memory", sequence_length = 64 }
      batch = { global_batch_size = 4, micro_batch_size = 2 }
      optimizer = { lr = 1e-2 }
      schedule = { warmup_steps = 5 }
      precision = { policy = "bf16-mixed", rules = ["lm_head: compute=f32"] }
    )");

    std::stop_source stop;
    api::Events events;
    events.on_plan = [](const api::Plan& plan) {
      for (const api::PlanOp& op : plan.ops) {
        if (op.scope == "lm_head") {
          std::printf("%s %s %s: factors in %s, decided by %s\n", op.scope.c_str(), op.op.c_str(),
                      op.pass.c_str(), op.multiplied.c_str(), op.decided_by.c_str());
        }
      }
    };
    events.on_step = [&](const api::Step& step) {
      if (step.step % 10 == 0)
        std::printf("step %3lld  loss %.4f\n", static_cast<long long>(step.step), step.loss);
      if (step.loss < 1.0) stop.request_stop();  // low enough: train() saves the state and returns
    };

    api::TrainOptions options;
    options.out = out;
    options.overwrite = true;
    options.data.tokens = tokens;
    const api::Summary summary = api::train(config, options, events, stop.get_token());
    std::printf("%s after %lld steps, loss %.4f\n", summary.interrupted ? "stopped" : "done",
                static_cast<long long>(summary.steps), summary.final_loss);
  } catch (const mantissa::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
