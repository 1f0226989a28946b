#include "mantissa/train/run/run_files.h"

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/setup/weights/base_hash.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "mantissa/train/run/claim.h"

namespace mantissa::run {

void watch_start(train::Trainer& trainer, const std::filesystem::path& out) {
  const std::filesystem::path path = out / "start.safetensors";
  if (!disk::exists(path)) return;  // the run began without measurements
  trainer.set_start([start = std::make_shared<weights::StartWeights>(path), &trainer](const plan::Slot& slot,
                                                                                      ConstMatrix master) {
    return start->unchanged(slot, master, trainer.device());
  });
}

void RunFiles::begin() {
  lock_.check();
  begins_ = trainer_.step() == 0;
  const std::filesystem::path folder = out_ / tokenizer::kRunFolder;
  if (files_.empty()) return disk::remove_whole(folder);  // of the run that is overwritten
  disk::AtomicDirectory directory(folder, disk::kTokenizer);
  for (const auto& [name, text] : files_) disk::write_file_atomic(directory.beside() / name, text);
  directory.commit();
}

void RunFiles::keep_start() {
  if (trainer_.config().log.health_interval == 0) return;
  const std::filesystem::path path = out_ / "start.safetensors";
  if (begins_) {
    weights::StartBase base = base_of(trainer_, fixed_hash());
    if (adapts()) base.files = weights::hash_of_files(trainer_.source());
    weights::save_start(path, trainer_.weights(), base);
  }
  watch_start(trainer_, out_);
}

const std::string& RunFiles::fixed_hash() {
  if (hashes_.fixed.empty()) hashes_.fixed = hash_of_fixed(trainer_);
  return hashes_.fixed;
}

std::string RunFiles::save_state(Orders& orders, double loss, const std::vector<std::string>& changes,
                                 bool validates) {
  lock_.check();
  fixed_hash();
  hashes_.rows = rows_.at_step(trainer_.step());
  std::string stays = save(trainer_, orders, out_, loss, changes, hashes_, validates);
  // The state first: until it is there, an earlier run's adapter stays.
  if (adapts()) {
    const RemoteReads reads(orders, trainer_);
    save_result();
  } else if (replaces()) {
    remove_earlier_result("");  // the directory now stands for the state
  }
  return stays;
}

std::filesystem::path RunFiles::last_state() const {
  return trainer_.step() > 0 ? io::find_states(out_).back().path : std::filesystem::path();
}

std::filesystem::path RunFiles::result() const {
  return out_ / (adapts() ? io::kAdapterFolder : "model");
}

bool RunFiles::replaces() const {
  return begins_ || disk::has_name(out_ / io::kEarlierMark);
}

std::uint64_t RunFiles::save_result() {
  lock_.check();
  const precision::Policy& policy = trainer_.config().policy;
  const std::uint64_t hash =
      adapts() ? weights::save_adapter(result(), trainer_.weights(), trainer_.source(), policy, files_)
               : weights::save_model(result(), trainer_.weights(), trainer_.model(), policy, files_);
  if (replaces()) remove_earlier_result(result().filename().string());
  return hash;
}

void RunFiles::remove_earlier_result(const std::string& kept) {
  try {
    remove_earlier(out_, kept);
  } catch (const Error& e) {  // the next state tries again
    earlier_stays_ = e.what();
  }
}

}  // namespace mantissa::run
