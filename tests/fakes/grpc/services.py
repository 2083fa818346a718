#!/usr/bin/env python3
"""Writes the services of a .proto file for the fake, as gRPC's plugin does for gRPC.

    services.py PROTO OUT.grpc.pb.h
"""
import pathlib
import re
import sys

METHOD_OF_STUB = """  grpc::Status {name}(grpc::ClientContext* context, const {asked}& asked, {answer}* answer) {{
      return grpc::callAndWait(channel_, "{path}", context, asked, answer);
    }}"""
METHOD_OF_ASYNC = """  void {name}(grpc::ClientContext* context, const {asked}* asked, {answer}* answer,
                std::function<void(grpc::Status)> done) {{
        grpc::callBack(channel_, "{path}", context, asked, answer, std::move(done));
      }}
      void {name}(grpc::ClientContext* context, const {asked}* asked, {answer}* answer,
                grpc::ClientUnaryReactor* reactor) {{
        grpc::prepareCall(channel_, "{path}", context, asked, answer, reactor);
      }}"""
METHOD_OF_SERVICE = """  template <typename Base>
  class With{kind}Method_{name} : public Base {{
   public:
    With{kind}Method_{name}() {{
      this->template add<{asked}, {answer}>(
          "{path}", [this](grpc::CallbackServerContext* context, const {asked}* asked, {answer}* answer) {{
            return this->{name}(context, asked, answer);
          }});
    }}
    virtual grpc::ServerUnaryReactor* {name}(grpc::CallbackServerContext* context, const {asked}*, {answer}*) {{
      context->DefaultReactor()->Finish({{grpc::StatusCode::UNIMPLEMENTED, ""}});
      return context->DefaultReactor();
    }}
  }};"""
SERVICE = """class {service} final {{
 public:
  class Stub {{
   public:
    class async {{
     public:
      explicit async(const std::shared_ptr<grpc::Channel>& channel) : channel_(channel) {{}}
    {async_methods}

     private:
      const std::shared_ptr<grpc::Channel> channel_;
    }};
    explicit Stub(const std::shared_ptr<grpc::Channel>& channel) : channel_(channel), async_(channel) {{}}
    class async* async() {{ return &async_; }}
  {stub_methods}

   private:
    const std::shared_ptr<grpc::Channel> channel_;
    class async async_;
  }};
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {{
    return std::make_unique<Stub>(channel);
  }}
  class Service : public grpc::Service {{}};
{service_methods}
  using CallbackService = {callback};
}};
"""


def service_of(package, service, body):
    methods = []
    for name, asked, answer in re.findall(r"rpc\s+(\w+)\s*\(\s*(\w+)\s*\)\s*returns\s*\(\s*(\w+)\s*\)", body):
        methods.append({"name": name, "asked": asked, "answer": answer, "path": f"/{package}.{service}/{name}"})
    callback = "Service"
    for method in reversed(methods):
        callback = f"WithCallbackMethod_{method['name']}<{callback}>"
    raw = "grpc::ByteBuffer"
    return SERVICE.format(
        service=service, callback=callback,
        async_methods="\n    ".join(METHOD_OF_ASYNC.format(**m) for m in methods),
        stub_methods="\n  ".join(METHOD_OF_STUB.format(**m) for m in methods),
        service_methods="\n".join(METHOD_OF_SERVICE.format(kind=kind, **{**m, **types}) for m in methods for kind, types in (
            ("Callback", {}), ("RawCallback", {"asked": raw, "answer": raw}))))


def main():
    proto, out = map(pathlib.Path, sys.argv[1:])
    text = re.sub(r"//[^\n]*", "", proto.read_text())
    package = re.search(r"package\s+([\w.]+);", text).group(1)
    parts = ["#pragma once\n", "#include <functional>", "#include <memory>\n",
             f'#include "{package.replace(".", "/")}/{proto.stem}.pb.h"',
             '#include "tests/fakes/grpc/client.h"', '#include "tests/fakes/grpc/server.h"\n',
             f"namespace {package.replace('.', '::')} {{\n"]
    parts += [service_of(package, *found) for found in re.findall(r"service\s+(\w+)\s*\{(.*?)\n\}", text, re.S)]
    parts.append("}")
    out.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
