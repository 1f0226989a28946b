// The server over sockets: clients that are wrong, slow, many or gone.
#include "mantissa/app/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "app/serve/served.h"
#include "mantissa/core/base/error.h"

namespace {
std::atomic<int> accept_error = 0;  // of the next call
std::atomic<bool> accept_error_lasts = false;
}  // namespace

/// Replaces that of the C library, to break the machine under the server.
extern "C" int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  const int error = accept_error_lasts ? accept_error.load() : accept_error.exchange(0);
  if (error == 0) return static_cast<int>(::syscall(SYS_accept4, socket, address, size, flags));
  errno = error;
  return -1;
}

namespace mantissa::serve {
namespace {

using mantissa::testing::has;
using mantissa::testing::Served;
using mantissa::testing::TemporaryFolder;
using mantissa::testing::trained;

/// A socket to the server.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval most{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes) const {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  /// Returns what arrives until the server closes, or until `end` was read.
  std::string read(const std::string& end = "\n") const {
    std::string all;
    char buffer[4096];
    while (end == "\n" || !has(all, end)) {
      const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<std::size_t>(n));
    }
    return all;
  }

 private:
  int socket_;
};

/// A server in this process on a port of its own.
class Running {
 public:
  explicit Running(const Limits& limits = {}, const std::string& key = {})
      : served_(trained(folder_), "32-true", limits), server_(served_.service, {"127.0.0.1", 0, key}) {
    server_.bind();
    port_ = std::stoi(server_.url().substr(server_.url().rfind(':') + 1));
    thread_ = std::thread([this] {
      try {
        server_.run(stop_.get_token(), [this](const std::string& text) {
          trouble_ = text;
          troubles_.fetch_add(1);
        });
      } catch (const ResourceError& e) {
        trouble_ = e.what();
      }
    });
  }
  ~Running() { stop(); }
  void stop() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  int port() const { return port_; }
  Served& served() { return served_; }
  /// Returns the last trouble; after stop(), or once troubles() has grown.
  const std::string& trouble() const { return trouble_; }
  int troubles() const { return troubles_; }
  std::string url() const { return server_.url(); }

  /// Returns the reply to bytes, after which the client sends nothing more.
  std::string tell(const std::string& bytes) const {
    const Client client(port_);
    client.send(bytes);
    return client.read();
  }

 private:
  TemporaryFolder folder_;
  Served served_;
  HttpServer server_;
  std::stop_source stop_;
  int port_ = 0;
  std::string trouble_;
  std::atomic<int> troubles_ = 0;
  std::thread thread_;
};

std::string post(const std::string& body, const std::string& headers = "Connection: close\r\n",
                 const std::string& path = "/v1/completions") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

const std::string kShort = R"({"prompt": "a", "max_tokens": 2})";

TEST(Http, AnswersRequestsOfOneConnection) {
  Running running;
  const Client client(running.port());
  for (int i = 0; i < 3; ++i) {
    client.send(post(kShort, ""));
    const std::string reply = client.read("\"total_tokens\":3}}");
    EXPECT_TRUE(has(reply, "HTTP/1.1 200 OK")) << reply;
  }
  EXPECT_TRUE(has(running.tell("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), R"({"status":"ok"})"));
}

TEST(Http, StreamsEvents) {
  Running running;
  const std::string body = R"({"prompt": "a", "max_tokens": 3, "stream": true})";
  const std::string reply =
      running.tell(post(body, "Accept-Encoding: gzip, deflate\r\nConnection: close\r\n"));
  EXPECT_TRUE(has(reply, "Transfer-Encoding: chunked")) << reply;
  EXPECT_TRUE(has(reply, "Content-Type: text/event-stream")) << reply;
  EXPECT_TRUE(has(reply, "data: [DONE]\n\n")) << reply;
  std::string old = post(body);
  old.replace(old.find("HTTP/1.1"), 8, "HTTP/1.0");
  const std::string plain = running.tell(old);
  EXPECT_FALSE(has(plain, "chunked")) << plain;
  EXPECT_TRUE(has(plain, "data: [DONE]\n\n")) << plain;
}

TEST(Http, HasAnErrorObjectForEveryWrongRequest) {
  Limits limits;
  limits.body_bytes = 1000;
  Running running(limits);
  const std::string close = "Host: localhost\r\nConnection: close\r\n\r\n";
  const std::string json =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  const std::pair<std::string, const char*> wrong[] = {
      {"GET /nothing HTTP/1.1\r\n" + close, "404"},
      {"GET /v1/completions HTTP/1.1\r\n" + close, "405"},
      {"PUT /health HTTP/1.1\r\nContent-Length: 100000000\r\n" + close, "405"},
      {"DELETE /v1/models HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + close, "405"},
      {"BREW /health HTTP/1.1\r\n" + close, "400"},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n" + close, "414"},
      {"GET /health HTTP/1.1\r\nA: " + std::string(9000, 'a') + "\r\n" + close, "400"},
      {"\x16\x03\x01 not HTTP at all\r\n\r\n", "400"},
      {"GET\r\n\r\n", "400"},
      {"GET /health HTTP/9.9\r\n" + close, "400"},
      {"GET /%00%zz HTTP/1.1\r\n" + close, "404"},
      {"GET /v1/models HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n", "403"},
      {"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n" + close + "{}", "415"},
      {"POST /v1/completions HTTP/1.1\r\nContent-Type: multipart/form-data\r\nContent-Length: 2\r\n" + close,
       "415"},
      {json + "Content-Encoding: gzip\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", "415"},
      {json + "Content-Length: 100000000000\r\nConnection: close\r\n\r\n{", "413"},
      {json + "Content-Length: 99999999999999999999999\r\nConnection: close\r\n\r\n{", "413"},
      {json + "Content-Length: -1\r\nConnection: close\r\n\r\n{}", "413"},
      {json + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n{}\r\n", "400"},
      {json + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nffffffffffffffff\r\n{}\r\n", "4"},
      {post(std::string(1001, ' ')), "413"},
      {post("{}"), "400"},
      {post("{\"prompt\": \"a\", \"n\": 1e30}"), "400"},
  };
  for (const auto& [bytes, status] : wrong) {
    const Client client(running.port());
    client.send(bytes);
    const std::string reply = client.read("\"code\":");
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 " + std::string(status))) << bytes.substr(0, 200) << "\n"
                                                                      << reply;
    EXPECT_TRUE(has(reply, R"({"error":{"message":)")) << bytes.substr(0, 200) << "\n" << reply;
  }
  EXPECT_TRUE(has(running.tell(post(kShort)), "200 OK"));
}

TEST(Http, LimitsHeadersAndChunksInAll) {
  Limits limits;
  limits.body_bytes = 100000;
  Running running(limits);
  std::string many = "GET /health HTTP/1.1\r\n";
  for (int i = 0; i < 2000; ++i) many += "X-" + std::to_string(i) + ": " + std::string(50, 'a') + "\r\n";
  EXPECT_TRUE(running.tell(many + "\r\n").starts_with("HTTP/1.1 400"));
  std::string chunks =
      "POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 60; ++i) chunks += "800\r\n" + std::string(2048, ' ') + "\r\n";
  EXPECT_TRUE(running.tell(chunks + "0\r\n\r\n").starts_with("HTTP/1.1 413"));
  std::string ranges = "Range: bytes=0-0";
  for (int i = 0; i < 1900; ++i) ranges += ",0-0";
  EXPECT_TRUE(
      has(running.tell("GET /health HTTP/1.1\r\n" + ranges + "\r\nConnection: close\r\n\r\n"), "HTTP/1.1"));
  EXPECT_TRUE(has(running.tell(post(kShort)), "200 OK"));
}

TEST(Http, EndsSlowClients) {
  Limits limits;
  limits.client_seconds = 1;
  Running running(limits);
  const Client silent(running.port()), header(running.port()), body(running.port());
  header.send("GET /health HT");
  body.send("POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{");
  std::thread drips([&] {  // one byte at a time, so that no single read waits for long
    for (int i = 0; i < 30; ++i) {
      header.send("A");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_TRUE(header.read().starts_with("HTTP/1.1 408"));
  const std::string reply = body.read();
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 408")) << reply;
  drips.join();
  EXPECT_TRUE(has(running.tell(post(kShort)), "200 OK"));
}

TEST(Http, AnswersTwoHundredClientsAtOnce) {
  Running running;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(std::make_unique<Client>(running.port()));
  for (const auto& client : clients) client->send(post(kShort));
  const std::string expected = running.served().post(nlohmann::json::parse(kShort))["choices"].dump();
  for (const auto& client : clients) {
    const std::string reply = client->read();
    ASSERT_TRUE(has(reply, "200 OK")) << reply;
    EXPECT_EQ(nlohmann::json::parse(reply.substr(reply.find("\r\n\r\n")))["choices"].dump(), expected);
  }
}

TEST(Http, RefusesConnectionsBeyondTheLimitAtOnce) {
  Limits limits;
  limits.connections = 2;
  Running running(limits);
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 2; ++i) {
    idle.push_back(std::make_unique<Client>(running.port()));
    idle.back()->send("GET /health HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(has(idle.back()->read("}"), "200 OK"));
  }
  const std::string reply = Client(running.port()).read();
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 503")) << reply;
  EXPECT_TRUE(has(reply, "Retry-After")) << reply;
  idle.clear();
}

TEST(Http, EndsTheWorkForClientsThatHaveGone) {
  Running running;
  {
    const Client whole(running.port()), stream(running.port());
    whole.send(post(R"({"prompt": "a", "max_tokens": 500, "n": 40})"));
    stream.send(post(R"({"prompt": "a", "max_tokens": 500, "n": 40, "stream": true})"));
    EXPECT_TRUE(has(stream.read("data: "), "200 OK"));
  }
  for (int i = 0; running.served().scheduler.requests() > 0 && i < 2000; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(running.served().scheduler.requests(), 0);
}

TEST(Http, NeedsTheKeyIfThereIsOne) {
  Running running({}, "secret");
  EXPECT_TRUE(has(running.tell(post(kShort)), "HTTP/1.1 401"));
  EXPECT_TRUE(has(running.tell(post(kShort, "Authorization: Bearer secre\r\nConnection: close\r\n")), "401"));
  EXPECT_TRUE(
      has(running.tell(post(kShort, "Authorization: Bearer secret\r\nConnection: close\r\n")), "200 OK"));
  EXPECT_TRUE(has(running.tell("GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"), "200 OK"));
}

TEST(Http, EndsStreamsWithAnErrorWhenItStops) {
  Running running;
  const Client stream(running.port()), whole(running.port()), idle(running.port());
  stream.send(post(R"({"prompt": "a", "max_tokens": 500, "n": 100, "stream": true})"));
  whole.send(post(R"({"prompt": "a", "max_tokens": 500, "n": 100})"));
  std::string reply = stream.read("data: ");
  running.stop();
  reply += stream.read();
  EXPECT_TRUE(has(reply, "shutting_down")) << reply.substr(reply.size() - 500);
  EXPECT_TRUE(has(whole.read(), "HTTP/1.1 503"));
}

const std::string kHealth = "GET /health HTTP/1.1\r\nConnection: close\r\n\r\n";

TEST(Http, SurvivesEveryErrorOfTheMachineAtAClient) {
  const Running running;
  for (const int error :
       {ECONNABORTED, EPROTO, ENETDOWN, EPERM, EINTR, EAGAIN, EMFILE, ENFILE, ENOBUFS, ENOMEM}) {
    accept_error = error;
    while (accept_error != 0) EXPECT_TRUE(has(running.tell(kHealth), "200 OK")) << error;
    EXPECT_TRUE(has(running.tell(kHealth), "200 OK")) << error;
  }
  EXPECT_EQ(running.troubles(), 0);
}

TEST(Http, TellsOnceWhyNobodyCanConnect) {
  const Running running;
  accept_error = EMFILE;
  accept_error_lasts = true;
  const Client first(running.port()), waits(running.port());  // accept() may have begun with the first one
  waits.send(kHealth);
  while (running.troubles() == 0) std::this_thread::yield();
  EXPECT_EQ(running.trouble(), "no client can connect for now: Too many open files");
  accept_error_lasts = false;
  accept_error = 0;
  EXPECT_TRUE(has(waits.read(), "200 OK"));
  EXPECT_EQ(running.troubles(), 1);
}

TEST(Http, EndsWithTheReasonWhenItsSocketIsBroken) {
  Running running;
  accept_error = EBADF;
  const Client client(running.port());
  while (accept_error != 0) std::this_thread::yield();
  running.stop();
  EXPECT_TRUE(has(running.trouble(), "the system has closed the server's socket: Bad file descriptor"))
      << running.trouble();
}

TEST(Http, ListensOnlyWhereNobodyElseDoes) {
  Running running;
  Door door;
  door.port = running.port();
  HttpServer second(running.served().service, door);
  EXPECT_THROW(second.bind(), ConfigError);
  EXPECT_TRUE(is_loopback("127.0.0.1") && is_loopback("::1") && is_loopback("localhost"));
  EXPECT_FALSE(is_loopback("0.0.0.0") || is_loopback("::") || is_loopback("127.evil.example"));
}

}  // namespace
}  // namespace mantissa::serve
