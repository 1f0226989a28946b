#include "mantissa/train/run/shared_state.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/unfinished.h"
#include "mantissa/engine/comm/bytes.h"
#include "mantissa/engine/comm/passed_error.h"
#include "mantissa/files/io/hash.h"
#include "mantissa/files/io/safetensors_stream.h"

namespace mantissa::run {
namespace {

using Memory = std::vector<train::Trainer::NamedMemory>;

std::size_t bytes_of(const train::Trainer::NamedMemory& m) {
  std::size_t bytes = mantissa::bytes_of(m.type);
  for (const std::int64_t size : m.shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

/// Returns the rank that writes each tensor: its owner; those of all ranks are dealt by bytes.
std::vector<int> writers_of(const Memory& memory, int ranks) {
  std::vector<std::size_t> load(static_cast<std::size_t>(ranks));
  std::vector<int> writers;
  for (const train::Trainer::NamedMemory& m : memory) {
    const auto least = std::ranges::min_element(load) - load.begin();
    writers.push_back(m.owner == plan::kEveryRank ? static_cast<int>(least) : m.owner);
    load[static_cast<std::size_t>(writers.back())] += bytes_of(m);
  }
  return writers;
}

/// Where the ranks write.
struct Place {
  std::string file;                    // empty: the first rank could not begin
  std::vector<std::uint64_t> offsets;  // by tensor
};

/// How the part of a rank ended: done, with the hash of what it wrote, or the file is not there, or an error.
struct Part {
  bool here = false;
  std::uint64_t hash = 0;
  comm::Bytes error;
};

/// Writes this rank's tensors and tells all ranks. Returns the parts of all.
std::vector<Part> write_own(const Memory& memory, const Place& place, const std::vector<int>& writers,
                            comm::Communicator& ranks) {
  Part own;
  try {
    own.here = disk::exists(place.file);
    std::optional<disk::File> file;
    io::Hash64 hash;
    for (std::size_t i = 0; own.here && i < memory.size(); ++i) {
      if (writers[i] != ranks.rank()) continue;
      if (!file) file.emplace(disk::File::open_to_complete(place.file));
      io::write_tensor(*file, place.offsets[i], tensor_of(memory[i]), hash);
    }
    own.hash = hash.digest();
    if (file) file->sync();
    if (file) file->close();
  } catch (...) {
    own.error = comm::bytes_of_error(std::current_exception());
  }
  comm::Bytes told;
  comm::append_all(told, std::tie(own.here, own.hash, own.error));
  std::vector<Part> parts;
  for (const comm::Bytes& of_rank : ranks.all_gather(told)) {
    std::span<const std::byte> in = of_rank;
    Part& part = parts.emplace_back();
    comm::take_all(in, std::tie(part.here, part.hash, part.error));
  }
  for (const Part& part : parts) comm::throw_error(part.error);
  return parts;
}

bool all_here(const std::vector<Part>& parts) {
  return std::ranges::all_of(parts, &Part::here);
}

/// Lets the other ranks answer reads of their memory, while it exists.
class Reads {
 public:
  explicit Reads(train::Trainer& trainer) : trainer_(trainer) {}
  ~Reads() {
    try {
      trainer_.end_reading();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others have ended
    }
  }
  Reads(const Reads&) = delete;
  Reads& operator=(const Reads&) = delete;

 private:
  train::Trainer& trainer_;
};

/// Writes what the ranks that do not see the file would have written.
void write_for_others(train::Trainer& trainer, const Memory& memory, const Place& place,
                      const std::vector<int>& writers, std::vector<Part>& parts) {
  const Reads reads(trainer);
  disk::File file = disk::File::open_to_complete(place.file);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].here) continue;
    io::Hash64 hash;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      if (writers[i] == static_cast<int>(rank))
        io::write_tensor(file, place.offsets[i], tensor_of(memory[i]), hash);
    }
    parts[rank].hash = hash.digest();
  }
  file.close();
}

}  // namespace

io::Dtype dtype_of(const train::Trainer::NamedMemory& m) {
  const bool dynamic = m.codes == StateCodes::dynamic8 || m.codes == StateCodes::dynamic8_positive;
  return dynamic ? io::Dtype::u8 : io::dtype_of(m.type);
}

io::TensorToWrite tensor_of(const train::Trainer::NamedMemory& m) {
  io::TensorToWrite t{.name = m.name, .dtype = dtype_of(m), .shape = m.shape};
  if (m.here() && m.device == nullptr) {
    t.bytes = m.bytes;
  } else {
    t.fill = [m](std::uint64_t offset, std::span<std::byte> out) {
      m.read(static_cast<std::size_t>(offset), out);
    };
  }
  return t;
}

std::string write_state(train::Trainer& trainer, Orders& orders, const std::filesystem::path& out,
                        const io::StateHeader& header, const std::vector<io::TensorToWrite>& tensors) {
  const int keep = static_cast<int>(trainer.config().checkpoint.keep);
  if (orders.ranks() == nullptr) return io::write_state(out, header, tensors, keep);
  comm::Communicator& ranks = *orders.ranks();
  orders.tell(Order::save);
  const Memory memory = trainer.state_memory();
  std::optional<io::SharedState> state;
  std::exception_ptr failure;
  Place place;
  try {
    state.emplace(out, header, tensors);
    place.file = state->file().string();
    for (std::size_t i = 0; i < memory.size(); ++i) place.offsets.push_back(state->offset(i));
    disk::File file = disk::File::open_to_complete(place.file);
    io::Hash64 hash;
    for (std::size_t i = memory.size(); i < tensors.size(); ++i)
      io::write_tensor(file, state->offset(i), tensors[i], hash);
    file.close();
  } catch (...) {
    failure = std::current_exception();
    place = {};
  }
  comm::Bytes told;
  comm::append_all(told, std::tie(place.file, place.offsets));
  ranks.broadcast(std::move(told));
  if (failure) std::rethrow_exception(failure);
  const std::vector<int> writers = writers_of(memory, ranks.size());
  std::vector<Part> parts = write_own(memory, place, writers, ranks);
  if (!all_here(parts)) write_for_others(trainer, memory, place, writers, parts);
  std::vector<io::Hash64> found(parts.size());
  state->read_back([&](std::size_t tensor, std::span<const std::byte> piece) {
    if (tensor < memory.size()) found[static_cast<std::size_t>(writers[tensor])].update(piece);
  });
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (found[rank].digest() == parts[rank].hash) continue;
    throw FileError(
        "{}: what {} wrote of this state is not in it. Fix: put the run directory on a file system that all "
        "machines share, or on one that the others do not see",
        disk::final_name(place.file), ranks.place(static_cast<int>(rank)));
  }
  return state->commit(keep);
}

void write_part(train::Trainer& trainer, comm::Communicator& ranks) {
  const comm::Bytes told = ranks.broadcast(comm::Bytes());
  std::span<const std::byte> in = told;
  Place place;
  comm::take_all(in, std::tie(place.file, place.offsets));
  if (place.file.empty()) return;
  const Memory memory = trainer.state_memory();
  try {
    const std::vector<Part> parts = write_own(memory, place, writers_of(memory, ranks.size()), ranks);
    if (!all_here(parts)) trainer.serve_reads();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the leading rank has it too, and says it
  }
}

}  // namespace mantissa::run
