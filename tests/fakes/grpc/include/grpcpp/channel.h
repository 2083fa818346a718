#pragma once

#include "tests/fakes/grpc/client.h"
#include "tests/fakes/grpc/server.h"
