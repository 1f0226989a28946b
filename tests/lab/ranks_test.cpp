// What the trainers of several ranks check of each other.
#include <gtest/gtest.h>

#include "engine/comm/run_ranks.h"
#include "lab/small_run.h"
#include "mantissa/setup/forecast/ranks.h"
#include "mantissa/train/steps/fixed_model.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::train {
namespace {

/// Runs a step on two ranks after `plant` has changed one of them. Returns the error of each.
std::vector<std::string> after_planting(int stage, const std::function<void(Trainer&, int rank)>& plant) {
  const lab::SmallRun s("32-true", {},
                        {"batch.shards=4", "batch.micro_batch_size=1", "distributed.check_interval=1",
                         "distributed.zero=" + std::to_string(stage)});
  std::vector<std::string> errors(2);
  mantissa::testing::run_ranks(2, [&](comm::Communicator& ranks) {
    Trainer trainer(s.config, s.model, s.task->again(s.config), *s.device, 0, &ranks);
    trainer.advance();
    plant(trainer, ranks.rank());
    try {
      trainer.advance();
    } catch (const RunStopped& e) {
      errors[static_cast<std::size_t>(ranks.rank())] = e.what();
    }
  });
  return errors;
}

TEST(TrainerOfARank, NamesATensorThatIsOtherThanThatOfTheFirst) {
  for (const auto& [name, stage] : {std::pair("model.layers.1.mlp.up_proj.weight", 0),
                                    {"model.norm.weight", 0},
                                    {"model.layers.1.mlp.up_proj.weight", 1},
                                    {"model.norm.weight", 2}}) {
    bool planted = false;
    const std::vector<std::string> errors =
        after_planting(stage, [&, name = name](Trainer& trainer, int rank) {
          if (rank != 1) return;
          for (const Trainer::NamedMemory& tensor : trainer.state_memory()) {
            if (tensor.name != std::string("master.") + name) continue;
            tensor.bytes[5] ^= std::byte{1};
            planted = true;
          }
        });
    ASSERT_TRUE(planted) << name;
    for (const std::string& error : errors) {
      EXPECT_NE(error.find(name), std::string::npos) << error;
      EXPECT_NE(error.find("of rank 1 has other bytes than that of rank 0"), std::string::npos) << error;
    }
  }
}

/// Besides what the plan counts, a step sends log-probabilities, norms, hashes and answers.
TEST(TrainerOfARank, SendsTheBytesOfItsPlan) {
  for (int stage = 0; stage <= 3; ++stage) {
    const lab::SmallRun s(
        "bf16-mixed", {},
        {"batch.shards=4", "batch.micro_batch_size=1", "distributed.check_interval=0",
         "distributed.persistence_threshold=0", "distributed.zero=" + std::to_string(stage)});
    mantissa::testing::run_ranks(2, [&](comm::Communicator& ranks) {
      Trainer trainer(s.config, s.model, s.task->again(s.config), *s.device, 0, &ranks);
      trainer.advance();
      const std::uint64_t before = ranks.sent_bytes();
      trainer.advance();
      const auto sent = static_cast<double>(ranks.sent_bytes() - before);
      const forecast::SentBytes planned = forecast::sent_bytes(trainer.parts().front(), s.config);
      const double tokens =
          static_cast<double>(s.config.batch.global_batch_size * s.config.data.sequence_length);
      EXPECT_GE(sent, planned.all()) << stage;
      EXPECT_LE(sent, planned.all() + 8 * tokens + 4096) << stage;
    });
  }
}

/// Keys and values of attention; states, tokens before blocks and their gradients of an RWKV-7.
TEST(TrainerOfARank, SendsTheBytesOfItsPlanForSharedRows) {
  const std::vector<std::string> recurrent = {"model.model_type=rwkv7", "model.head_dim=16"};
  for (const std::vector<std::string>& model : {std::vector<std::string>(), recurrent}) {
    for (const char* recompute : {"none", "block"}) {
      std::vector<std::string> changes = {"batch.shards=2", "distributed.check_interval=0",
                                          "distributed.sequence_shards=3", "data.sequence_length=66",
                                          std::string("batch.recompute=") + recompute};
      changes.insert(changes.end(), model.begin(), model.end());
      std::string text = lab::kConfig;
      for (const char* line : {"num_attention_heads = 2\n", "tie_word_embeddings = true\n"})
        if (!model.empty()) text.erase(text.find(line), std::string(line).size());
      const lab::SmallRun s("bf16-mixed", {}, changes, text);
      mantissa::testing::run_ranks(3, [&](comm::Communicator& ranks) {
        Trainer trainer(s.config, s.model, s.task->again(s.config), *s.device, 0, &ranks);
        trainer.advance();
        const std::uint64_t before = ranks.sent_bytes();
        trainer.advance();
        const auto sent = static_cast<double>(ranks.sent_bytes() - before);
        const forecast::SentBytes planned = forecast::sent_bytes(trainer.parts().front(), s.config);
        EXPECT_EQ(planned.states > 0, !model.empty());
        const auto tokens =
            static_cast<double>(s.config.batch.global_batch_size * s.config.data.sequence_length);
        EXPECT_GE(sent, planned.all()) << recompute;
        EXPECT_LE(sent, planned.all() + 8 * tokens + 4096) << recompute;
      });
    }
  }
}

/// Each rank runs some micro-batches of a reference, and sends the others their log-probabilities.
TEST(ReferenceOfRanks, HasTheBitsOfOneRankAndItsWorkDivided) {
  for (const char* policy : {"bf16-mixed", "fp8-hybrid scaling=current"}) {
    const lab::SmallRun s(policy);
    const std::optional<text::StepData> rows = s.task->step(1, 5, {});
    const auto values = [&](comm::Communicator* ranks) {
      Reference reference(s.config, s.model, "", *s.device);
      if (ranks != nullptr) reference.share(*ranks);
      const auto weights = std::make_shared<runtime::WeightSet>(reference.program(), *s.device);
      const auto arena = std::make_shared<runtime::Arena>(reference.program().memory.arena(), *s.device);
      reference.bind(weights, arena);
      return reference.of(*rows, {})->log_probs;
    };
    const std::vector<double> alone = values(nullptr);
    ASSERT_EQ(std::ssize(alone), rows->tokens());
    for (const int size : {2, 3, 4}) {
      mantissa::testing::run_ranks(size, [&](comm::Communicator& ranks) {
        EXPECT_EQ(values(&ranks), alone);
        const Share own = share_of(ranks.rank(), size, rows->items(), s.config.batch.micro_batch_size);
        const auto bytes = static_cast<std::uint64_t>(8 * (rows->begin(own.end) - rows->begin(own.first)));
        EXPECT_GE(ranks.sent_bytes(), bytes * static_cast<std::uint64_t>(size - 1));
      });
    }
  }
}

TEST(TrainerOfARank, IsSilentAboutEqualOnes) {
  for (const std::string& error : after_planting(2, [](Trainer&, int) {})) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace mantissa::train
