#include "mantissa/train/run/claim.h"

#include <gtest/gtest.h>

#include "core/disk/temporary.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/files/io/state.h"

namespace mantissa::run {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::message_of;
using test::put;

class Claim : public test::TemporaryFolder {
 protected:
  void put_state(const char* name = "step-00000002") const {
    fs::create_directories(folder / "state" / name);
    put(folder / "state" / name / "state.json", "{}");
    put(folder / "state" / name / "state.safetensors", "x");
  }
  std::string refusal(std::int64_t step = 0) const {
    return message_of<FileError>([&] { check_claim(folder, names_of({}), step); });
  }
};

TEST_F(Claim, NamesThatNoRunWroteAreRefused) {
  put(folder / "notes.txt", "a user's");
  EXPECT_NO_THROW(check_claim(folder, names_of({}), 0));
  for (const char* name : {"config.toml", "metrics.jsonl", "model"}) {
    put(folder / name, "a user's");
    EXPECT_NE(refusal().find(std::string(name) + ": is in the way"), std::string::npos) << name;
    fs::remove(folder / name);
  }
}

TEST_F(Claim, ARunOwnsOnlyWhatItWrites) {
  claim(folder, names_of({}));
  put(folder / "metrics.jsonl", "the run's");
  put(folder / "samples.jsonl", "a user's");
  EXPECT_NO_THROW(check_claim(folder, names_of({}), 0));
  begin_anew(folder);
  EXPECT_FALSE(fs::exists(folder / "metrics.jsonl"));
  EXPECT_EQ(contents_of(folder / "samples.jsonl"), "a user's");
  config::RunConfig rl;
  rl.train.objective = "rl";
  EXPECT_THROW(check_claim(folder, names_of(rl), 0), FileError);
}

TEST_F(Claim, WhatWouldStopTheRunLaterIsFoundFirst) {
  claim(folder, names_of({}));
  put_state();
  put(folder / "state" / "step-00000002" / "notes", "a user's");
  EXPECT_NE(refusal().find("step-00000002: contains \"notes\""), std::string::npos);
  EXPECT_NO_THROW(check_claim(folder, names_of({}), 2)) << "a run that continues from it does not remove it";
  fs::remove(folder / "state" / "step-00000002" / "notes");
  fs::create_directory(folder / "model.partial");
  EXPECT_NE(refusal().find("model.partial: is in the way"), std::string::npos);
  fs::remove(folder / "model.partial");
  fs::create_directory(folder / "model");
  put(folder / "model" / "notes", "a user's");
  EXPECT_NE(refusal().find("model: is not replaced"), std::string::npos);
}

TEST_F(Claim, RunsOfEarlierVersionsGetTheirLists) {
  put_state();
  put(folder / "metrics.jsonl", "a line");
  fs::create_directory(folder / "model");
  put(folder / "model" / "config.json", "{}");
  EXPECT_NO_THROW(check_claim(folder, names_of({}), 0));
  put(folder / "model" / "notes", "a user's");
  EXPECT_NE(refusal().find("model: contains \"notes\", which no run wrote"), std::string::npos);
  fs::remove(folder / "model" / "notes");
  put(folder / "model" / "rwkv_vocab.txt", "of the run's tokenizer");
  EXPECT_NE(refusal().find("rwkv_vocab.txt"), std::string::npos);
  EXPECT_NO_THROW(check_claim(folder, names_of({}, {{"rwkv_vocab.txt", ""}}), 0));
  fs::remove(folder / "model" / "rwkv_vocab.txt");
  put(folder / "samples.jsonl", "a user's");
  adopt_earlier(folder, names_of({}));
  EXPECT_FALSE(disk::owned_names(folder).contains("samples.jsonl"));
  EXPECT_TRUE(disk::owned_names(folder).contains("metrics.jsonl"));
  EXPECT_EQ(disk::owned_names(folder / "model"), std::set<std::string>{"config.json"});
  EXPECT_NO_THROW(check_claim(folder, names_of({}), 0));
  begin_anew(folder);
  EXPECT_TRUE(fs::exists(folder / io::kEarlierMark));
  EXPECT_EQ(io::open_model(folder).kind, io::ModelPath::Kind::state) << "a state is that of the new run";
  io::remove_states_after(folder, 0);
  EXPECT_THROW(io::open_model(folder), FileError);
  remove_earlier(folder, "");
  EXPECT_FALSE(fs::exists(folder / "model"));
  EXPECT_FALSE(fs::exists(folder / io::kEarlierMark));
}

}  // namespace
}  // namespace mantissa::run
