#include "tests/fakes/grpc/call.h"

#include <utility>

#include "tests/fakes/grpc/server.h"

namespace trainyard::fakes {
namespace {

constexpr std::chrono::milliseconds kConnectAgain{20};

}  // namespace

Call::Call(Request request, CallListener listener)
    : request_(std::move(request)), listener_(std::move(listener)) {}

Call::~Call() = default;

void Call::start(Connect connect) {
  if (request_.deadline) {
    Executor::get().postAt(*request_.deadline, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->end({grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"});
      self->cancelServer();
    });
  }
  Executor::get().post(
      [self = shared_from_this(), connect = std::move(connect)] { self->reach(connect); });
}

void Call::cancel() {
  end(grpc::Status::CANCELLED);
  cancelServer();
}

void Call::reach(const Connect& connect) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
  }
  grpc::Status why;
  const std::shared_ptr<ServerCore> server = connect(&why);
  if (server != nullptr) {
    deliver(server);
  } else if (request_.wait_for_ready) {
    Executor::get().postAt(std::chrono::steady_clock::now() + kConnectAgain,
                           [self = shared_from_this(), connect] { self->reach(connect); });
  } else {
    end(why);
  }
}

void Call::deliver(const std::shared_ptr<ServerCore>& server) {
  const grpc::ByteBuffer arrived = copied(request_.bytes);
  request_.bytes.Clear();
  if (joined(arrived).size() > server->most_bytes) {
    return end({grpc::StatusCode::RESOURCE_EXHAUSTED, "Received message larger than max"});
  }
  exchange_ = server->open(request_.method);
  if (exchange_ == nullptr) return end({grpc::StatusCode::UNIMPLEMENTED, ""});
  if (!exchange_->parse(arrived)) return end({grpc::StatusCode::INTERNAL, "cannot be parsed"});
  {
    std::lock_guard lock(mutex_);
    server_ = server;
  }
  if (!server->enter(shared_from_this())) {
    return end({grpc::StatusCode::UNAVAILABLE, "Socket closed"});
  }
  context_ = std::make_unique<grpc::CallbackServerContext>(request_.metadata,
                                                           server->credentials.secure());
  bind(exchange_->handle(context_.get()));
}

// It cannot finish, after which it may be gone, before it knows its call.
void Call::bind(grpc::ServerUnaryReactor* reactor) {
  {
    std::lock_guard lock(mutex_);
    reactor_ = reactor;
    if (cancelled_) tellCancel();
  }
  reactor->bind(shared_from_this());
}

void Call::sendMetadata() {
  std::lock_guard lock(mutex_);
  if (ended_ || heard_metadata_ || !listener_.metadata) return;
  heard_metadata_ = true;
  tell([this] { listener_.metadata(true); });
}

void Call::finish(const grpc::Status& status) {
  end(status, status.ok() ? copied(exchange_->reply()) : grpc::ByteBuffer());
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    if (telling_cancel_) return;  // what tells of it goes on
  }
  Executor::get().post([self = shared_from_this()] { self->leave(); });
}

void Call::leave() {
  reactor_->unbind();
  reactor_->OnDone();
  server_->leave(shared_from_this());
}

void Call::abandon() {
  end({grpc::StatusCode::UNAVAILABLE, "Socket closed"});
  cancelServer();
}

void Call::end(const grpc::Status& status, grpc::ByteBuffer reply) {
  std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  if (listener_.metadata && !std::exchange(heard_metadata_, true)) {
    tell([this, ok = status.ok()] { listener_.metadata(ok); });
  }
  tell([this, status, reply = std::move(reply)] { listener_.done(status, reply); });
}

// With the mutex held.
void Call::tell(std::function<void()> event) {
  events_.push_back(std::move(event));
  if (std::exchange(telling_, true)) return;
  Executor::get().post([self = shared_from_this()] { self->runEvents(); });
}

void Call::runEvents() {
  std::unique_lock lock(mutex_);
  while (!events_.empty()) {
    const std::function<void()> event = std::move(events_.front());
    events_.pop_front();
    lock.unlock();
    event();
    lock.lock();
  }
  telling_ = false;
}

void Call::cancelServer() {
  std::lock_guard lock(mutex_);
  if (finished_ || std::exchange(cancelled_, true) || reactor_ == nullptr) return;
  tellCancel();
}

// With the mutex held.
void Call::tellCancel() {
  telling_cancel_ = true;
  Executor::get().post([self = shared_from_this()] {
    self->reactor_->OnCancel();
    {
      std::lock_guard lock(self->mutex_);
      self->telling_cancel_ = false;
      if (!self->finished_) return;
    }
    self->leave();
  });
}

}  // namespace trainyard::fakes
