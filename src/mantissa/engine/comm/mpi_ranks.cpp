// Ranks that are processes of MPI, through the shared library for the implementation that started them.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/engine/comm/launch.h"
#include "mantissa/engine/comm/mpi/library.h"

namespace mantissa::comm {
namespace {

static_assert(static_cast<int>(Channel::work) == kMantissaMpiWork &&
              static_cast<int>(Channel::end) == kMantissaMpiEnd);

class MpiRank final : public Transport {
 public:
  explicit MpiRank(const MantissaMpi& mpi) : mpi_(mpi) {
    if (const char* problem = mpi_.open(&rank_, &size_, &local_size_))
      throw ResourceError("MPI cannot start: {}", problem);
  }
  ~MpiRank() override { mpi_.close(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int local_size() const override { return local_size_; }
  std::string place(int rank) const override { return fmt::format("rank {} on {}", rank, mpi_.host(rank)); }

  Request send(int to, std::span<const std::byte> bytes, Channel channel) override {
    return checked(mpi_.send(bytes.data(), bytes.size(), to, static_cast<int>(channel)), to);
  }
  Request receive(int from, std::span<std::byte> bytes, Channel channel) override {
    return checked(mpi_.receive(bytes.data(), bytes.size(), from, static_cast<int>(channel)), from);
  }
  bool done(Request request) override {
    const int state = mpi_.test(reinterpret_cast<void*>(request));
    if (state < 0)
      throw RankLost("MPI lost a message ({}), so the command ends; the last state of a run is complete",
                     mpi_.error());
    return state > 0;
  }
  void end_all(int code) override { mpi_.end_all(code); }

 private:
  Request checked(void* request, int other) const {
    if (request == nullptr)
      throw RankLost(
          "{}: MPI has no way to it ({}), so the command ends; the last state of a run is complete",
          place(other), mpi_.error());
    return reinterpret_cast<Request>(request);
  }

  const MantissaMpi& mpi_;
  int rank_ = 0, size_ = 1, local_size_ = 1;
};

}  // namespace

std::vector<std::filesystem::path> library_folders() {
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  const std::string program(self.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::filesystem::path folder = std::filesystem::path(program).parent_path();
  return {folder, folder.parent_path() / "lib/mantissa"};
}

std::unique_ptr<Transport> join(Mpi mpi) {
  const std::string file = fmt::format("libmantissa_mpi_{}.so", name(mpi));
  std::string problems;
  for (const std::filesystem::path& folder : library_folders()) {
    // Global, since MPI loads its own parts, which need its symbols.
    void* library = dlopen((folder / file).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      problems += fmt::format("{}{}", problems.empty() ? "" : "; ", dlerror());
      continue;
    }
    const auto functions = reinterpret_cast<const MantissaMpi* (*)()>(dlsym(library, "mantissa_mpi"));
    if (functions == nullptr || functions()->version != kMantissaMpiVersion)
      throw ResourceError("{}: is of another version of mantissa. Fix: build or install both together",
                          (folder / file).string());
    return std::make_unique<MpiRank>(*functions());
  }
  throw ResourceError(
      "started by {}, but {} cannot be loaded ({}). Fix: install {} and build mantissa again, or set MANTISSA_MPI=none "
      "to run this process alone",
      mpi == Mpi::openmpi ? "Open MPI" : "MPICH", file, problems,
      mpi == Mpi::openmpi ? "libopenmpi-dev" : "libmpich-dev");
}

}  // namespace mantissa::comm
