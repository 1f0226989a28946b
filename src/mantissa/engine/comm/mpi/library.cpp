// The shared library for one implementation of MPI: compiled once for each that is installed, and loaded only
// under its launcher.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "mantissa/engine/comm/mpi/library.h"

namespace {

constexpr int kHostBytes = 64;
/// MPI counts bytes in int.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

std::string last_error;
std::vector<std::array<char, kHostBytes>> hosts;

struct Request {
  std::vector<MPI_Request> parts;
};

/// Receives that are not complete: an error may leave some, which MPI complains about at its end.
std::set<Request*> open_receives;

bool works(int code) {
  if (code == MPI_SUCCESS) return true;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  last_error.assign(text.data(), static_cast<std::size_t>(length));
  return false;
}

const char* open(int* rank, int* size, int* local_size) {
  int thread = 0;
  // One thread at a time calls it: the main thread, then that of the communicator.
  if (!works(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &thread))) return last_error.c_str();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (thread < MPI_THREAD_SERIALIZED) return "this MPI lacks MPI_THREAD_SERIALIZED";
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  MPI_Comm local = MPI_COMM_NULL;
  if (!works(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, *rank, MPI_INFO_NULL, &local)))
    return last_error.c_str();
  MPI_Comm_size(local, local_size);
  MPI_Comm_free(&local);
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  MPI_Get_processor_name(name.data(), &length);
  std::array<char, kHostBytes> own{};
  std::memcpy(own.data(), name.data(), static_cast<std::size_t>(std::min(length, kHostBytes - 1)));
  hosts.resize(static_cast<std::size_t>(*size));
  if (!works(MPI_Allgather(own.data(), kHostBytes, MPI_CHAR, hosts.data(), kHostBytes, MPI_CHAR,
                           MPI_COMM_WORLD)))
    return last_error.c_str();
  return nullptr;
}

const char* host(int rank) {
  return hosts[static_cast<std::size_t>(rank)].data();
}

/// Starts the parts of a message by start(bytes, count, request).
template <class Byte, class Start>
void* start_parts(Byte* bytes, std::size_t count, const Start& start) {
  auto* request = new Request;
  for (std::size_t at = 0; at < count; at += kMostBytes) {
    MPI_Request& part = request->parts.emplace_back(MPI_REQUEST_NULL);
    if (works(start(bytes + at, static_cast<int>(std::min(kMostBytes, count - at)), &part))) continue;
    delete request;
    return nullptr;
  }
  return request;
}

void* send(const void* bytes, std::size_t count, int to, int channel) {
  return start_parts(static_cast<const char*>(bytes), count,
                     [=](const char* part, int size, MPI_Request* request) {
                       return MPI_Isend(part, size, MPI_BYTE, to, channel, MPI_COMM_WORLD, request);
                     });
}

void* receive(void* bytes, std::size_t count, int from, int channel) {
  void* request =
      start_parts(static_cast<char*>(bytes), count, [=](char* part, int size, MPI_Request* request) {
        return MPI_Irecv(part, size, MPI_BYTE, from, channel, MPI_COMM_WORLD, request);
      });
  if (request != nullptr) open_receives.insert(static_cast<Request*>(request));
  return request;
}

int test(void* opaque) {
  auto* request = static_cast<Request*>(opaque);
  int done = 0;
  if (!works(MPI_Testall(static_cast<int>(request->parts.size()), request->parts.data(), &done,
                         MPI_STATUSES_IGNORE)))
    return -1;
  if (done == 0) return 0;
  open_receives.erase(request);
  delete request;
  return 1;
}

const char* error() {
  return last_error.c_str();
}

void close() {
  for (Request* request : open_receives) {
    for (MPI_Request& part : request->parts) {
      if (part == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&part);
      MPI_Wait(&part, MPI_STATUS_IGNORE);
    }
  }
  MPI_Finalize();
}

void end_all(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
}

}  // namespace

const MantissaMpi* mantissa_mpi() {
  static constexpr MantissaMpi kFunctions = {
      kMantissaMpiVersion, open, host, send, receive, test, error, close, end_all};
  return &kFunctions;
}
