#pragma once

#include "tests/fakes/grpc/client.h"
