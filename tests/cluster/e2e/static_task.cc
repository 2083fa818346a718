// A task of a user's own: one static program in an image that holds nothing else. As ps it answers
// every connection with its name; as worker it asks every ps for its name and ends. Says what is wrong
// with the place it runs in: root, a writable root file system, variables of a loader.
//
//   static_task --role=ps|worker --index=N --ps_hosts=HOST:PORT,...
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace {

std::string flag(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--" + name + "=", 0) == 0) return word.substr(name.size() + 3);
  }
  return "";
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Empty when all is as it should be.
std::string wrongPlace() {
  if (getuid() == 0) return "runs as root";
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "LD_", 3) == 0) return std::string("has ") + *entry;
  }
  if (std::ofstream("/written").good()) return "the root file system may be written";
  return "";
}

int connectTo(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.substr(0, colon).c_str(), address.substr(colon + 1).c_str(), &hints,
                  &found) != 0) {
    return -1;
  }
  const int fd = socket(found->ai_family, SOCK_STREAM, 0);
  const bool is_connected = connect(fd, found->ai_addr, found->ai_addrlen) == 0;
  freeaddrinfo(found);
  if (is_connected) return fd;
  close(fd);
  return -1;
}

// What the ps at `address` calls itself; waits for it for a minute.
std::string nameOf(const std::string& address) {
  for (int attempt = 0; attempt < 600; ++attempt) {
    const int fd = connectTo(address);
    if (fd >= 0) {
      char text[64] = {};
      const ssize_t size = read(fd, text, sizeof(text) - 1);
      close(fd);
      return std::string(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    }
    poll(nullptr, 0, 100);
  }
  return "";
}

int serve(const std::string& name, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* own = nullptr;
  if (getaddrinfo(nullptr, port.c_str(), &hints, &own) != 0) return 1;
  const int listener = socket(own->ai_family, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, own->ai_addr, own->ai_addrlen) != 0 || listen(listener, 16) != 0) {
    std::printf("%s: port %s: %s\n", name.c_str(), port.c_str(), std::strerror(errno));
    return 1;
  }
  for (;;) {
    const int fd = accept(listener, nullptr, nullptr);
    if (fd < 0) continue;
    if (write(fd, name.data(), name.size()) < 0) std::perror("write");
    close(fd);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (const std::string wrong = wrongPlace(); !wrong.empty()) {
    std::printf("wrong place: %s\n", wrong.c_str());
    return 3;
  }
  const std::string role = flag(argc, argv, "role"), index = flag(argc, argv, "index");
  const std::vector<std::string> servers = split(flag(argc, argv, "ps_hosts"), ',');
  if (role == "ps") {
    const std::string& own = servers.at(std::stoul(index));
    return serve("ps-" + index, own.substr(own.rfind(':') + 1));
  }
  for (std::size_t i = 0; i < servers.size(); ++i) {
    const std::string name = nameOf(servers[i]);
    if (name != "ps-" + std::to_string(i)) {
      std::printf("%s says '%s'\n", servers[i].c_str(), name.c_str());
      return 1;
    }
  }
  std::printf("worker-%s: %zu parameter servers answered\n", index.c_str(), servers.size());
}
