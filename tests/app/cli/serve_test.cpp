// mantissa serve as a process: its answers are those of generate, and signals end it in order.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/cli/run_program.h"

namespace mantissa::testing {
namespace {

/// A server in the folder, which has a run `r`. Ended by finish().
class Server {
 public:
  Server(const TemporaryFolder& folder, const std::string& options) {
    std::filesystem::remove(folder / "out");  // of an earlier command
    child_ = start(folder, "serve r --port 0 --json " + options);
    while (!has(read_all(folder / "out"), "\n") && runs(child_))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string line = read_all(folder / "out");
    if (!line.empty()) ready_ = nlohmann::json::parse(line);
  }
  ~Server() {
    if (child_ > 0) finish();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Ends the server with SIGTERM. Returns its exit code.
  int finish() {
    kill(child_, SIGTERM);
    const int status = wait_for(std::exchange(child_, -1)).status;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const nlohmann::json& ready() const { return ready_; }

  /// Returns the JSON of the reply to a request for a completion.
  nlohmann::json complete(const nlohmann::json& request) const {
    const std::string url = ready_["url"], body = request.dump();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const std::string bytes =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    std::string reply;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      reply.append(buffer, static_cast<std::size_t>(n));
    ::close(socket);
    return nlohmann::json::parse(reply.substr(std::min(reply.find("\r\n\r\n"), reply.size())), nullptr,
                                 false);
  }

 private:
  pid_t child_ = -1;
  nlohmann::json ready_;
};

TEST(ServeCommand, AnswersWithTheBitsOfGenerate) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const std::string policy = "--precision bf16-mixed --rule 'lm_head: compute=f32' ";
  const Result r = mantissa(
      folder,
      "generate r --prompt Kim --max-new-tokens 12 --temperature 1.2 --seed 5 --top-k 90 --json " + policy);
  ASSERT_EQ(r.code, 0) << r.err;
  const nlohmann::json want = nlohmann::json::parse(r.out);
  Server server(folder, policy + "--temperature 1.2 --top-k 90 --max-new-tokens 12");
  ASSERT_TRUE(server.ready().is_object()) << read_all(folder / "err");
  EXPECT_EQ(server.ready()["model"], "r");
  EXPECT_EQ(server.ready()["chat"], false);
  const nlohmann::json reply = server.complete({{"prompt", "Kim"}, {"seed", 5}, {"logprobs", 0}});
  EXPECT_EQ(reply["choices"][0]["text"], want["text"]);
  EXPECT_EQ(reply["choices"][0]["logprobs"]["token_logprobs"], want["log_probs"]);
  EXPECT_EQ(server.finish(), 130);
  EXPECT_TRUE(has(read_all(folder / "err"), "terminated: the server has ended")) << read_all(folder / "err");
}

TEST(ServeCommand, NeedsAKeyBeyondThisMachine) {
  const TemporaryFolder folder;
  ASSERT_EQ(train_tiny(folder, 3, "32-true").code, 0);
  const auto expect_refused = [&](const std::string& options, const char* message) {
    const Result r = mantissa(folder, "serve r --port 0 " + options);
    EXPECT_EQ(r.code, 2) << r.err;
    EXPECT_TRUE(has(r.err, message)) << r.err;
  };
  write(folder / "empty", "\n");
  write(folder / "words", "two words\n");
  expect_refused("--host 0.0.0.0", "--host 0.0.0.0: other machines reach this address");
  expect_refused("--api-key-file empty", "--api-key-file empty: expected one key");
  expect_refused("--api-key-file words", "--api-key-file words: expected one key");
  expect_refused("--api-key-file absent", "absent");
  expect_refused("--host 192.0.2.1 --api-key-file run.toml", "expected one key");
  expect_refused("--temperature -1", "--temperature -1: must be 0");
  expect_refused("--port 70000", "--port");
  write(folder / "key", "secret\n");
  expect_refused("--host 192.0.2.1 --api-key-file key", "cannot listen there");
  Server server(folder, "--host 0.0.0.0 --api-key-file key");
  ASSERT_TRUE(server.ready().is_object()) << read_all(folder / "err");
  EXPECT_EQ(server.complete({{"prompt", "a"}})["error"]["code"], "invalid_api_key");
}

}  // namespace
}  // namespace mantissa::testing
