# Three functions define every target.
#
#   ty_library(NAME base_core SRCS a.cc DEPS absl::status ...)
#   ty_program(NAME trainyard-agent SRCS main.cc DEPS ...)
#   ty_test(NAME placement_test SRCS placement_test.cc DEPS runtime_placement LABELS unit
#     [GROUP runtime_tests] [TIMEOUT 60])
#
# Sources are listed, never globbed. Libraries are static; headers are included from the root of the
# tree ("runtime/placement/placement.h").
include(units)
include(test_groups)

# UNIT: how many sources are compiled as one (units.cmake).
function(ty_library)
  cmake_parse_arguments(ARG "" "NAME;UNIT" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(${ARG_NAME} STATIC ${ARG_SRCS})
    ty_units(${ARG_NAME} ${ARG_UNIT})
    target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS})
  else()
    add_library(${ARG_NAME} INTERFACE)
    target_include_directories(${ARG_NAME} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${ARG_NAME} INTERFACE ${ARG_DEPS})
  endif()
endfunction()

function(ty_program)
  cmake_parse_arguments(ARG "" "NAME" "SRCS;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SRCS})
  ty_units(${ARG_NAME})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} ${TRAINYARD_SANITIZER_OPTIONS})
endfunction()

# Whether a target, which must be defined already, links gRPC or what stands for it, directly or through others.
function(ty_links_grpc target result)
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${target} is not defined yet")
  endif()
  set(open ${target})
  set(seen)
  set(${result} FALSE PARENT_SCOPE)
  while(NOT open STREQUAL "")
    list(POP_FRONT open next)
    if(next MATCHES "^gRPC::" OR next STREQUAL "fake_grpc")
      set(${result} TRUE PARENT_SCOPE)
      return()
    elseif(TARGET ${next} AND NOT next IN_LIST seen)
      list(APPEND seen ${next})
      get_target_property(is_imported ${next} IMPORTED)
      if(NOT is_imported)
        foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
          get_target_property(links ${next} ${property})
          if(links)
            list(APPEND open ${links})
          endif()
        endforeach()
      endif()
    endif()
  endwhile()
endfunction()

# Fast tests (unit, and torch, which link LibTorch) run all at once. The others start processes of their
# own, and three of them run at a time (tests/run_tests.py): of those that start jobs on this machine one,
# beside one at each of the two clusters that tests share; those that are also `light` beside anybody; any
# other kind alone. The ones with the longest TIMEOUT begin first, so that what is left in the end is light or short.
function(ty_set_lane name)
  get_test_property(${name} TIMEOUT cost)
  set_tests_properties(${name} PROPERTIES COST ${cost})
  if("light" IN_LIST ARGN)
    return()
  endif()
  foreach(lane multiproc cluster)
    if(lane IN_LIST ARGN)
      set_tests_properties(${name} PROPERTIES RESOURCE_LOCK ${lane})
      return()
    endif()
  endforeach()
  if(NOT "unit" IN_LIST ARGN AND NOT "torch" IN_LIST ARGN)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# One ctest entry per test program. Programs that the test starts are found through the environment
# variable TRAINYARD_BIN (the build's bin folder), sources through TRAINYARD_SOURCE.
#
# The target sanitized_tests is all of them in a build with a sanitizer. The thread sanitizer sees nothing
# of the locks inside Debian's uninstrumented gRPC, and reports races that are none: with it, tests
# labelled `threads` have one of our own in its place (tests/fakes/grpc), and others that link gRPC are
# left out. sanitized_threads_tests is those labelled `threads`: what several threads or processes do at
# one time, and what they do it with.
#
# unit_tests is all labelled `unit` and the programs that they start: what `make check` builds.
#
# AT_ONCE: so many of its cases run at a time, in processes of their own (tests/group_main.cc, so in a GROUP
# only): for those whose jobs mostly wait, for deadlines, back-offs and steps that last.
#
# Those labelled `torch` exist in a build with LibTorch only, and are linked with it; the target
# torch_tests is all of them.
function(ty_test)
  cmake_parse_arguments(ARG "" "NAME;GROUP;TIMEOUT;UNIT;AT_ONCE" "SRCS;DEPS;LABELS;PROGRAMS" ${ARGN})
  if(TRAINYARD_SANITIZE STREQUAL thread AND NOT "threads" IN_LIST ARG_LABELS)
    foreach(dependency ${ARG_DEPS} ${ARG_PROGRAMS})
      ty_links_grpc(${dependency} links_grpc)
      if(links_grpc)
        return()
      endif()
    endforeach()
  endif()
  if(ARG_GROUP AND NOT TRAINYARD_SANITIZE)
    ty_join_group(${ARG_GROUP} ${ARG_NAME} "${ARG_SRCS}" "${ARG_DEPS}")
  else()
    # Linking would write through the link of a test that was in a group before.
    if(IS_SYMLINK ${CMAKE_BINARY_DIR}/tests/${ARG_NAME})
      file(REMOVE ${CMAKE_BINARY_DIR}/tests/${ARG_NAME})
    endif()
    add_executable(${ARG_NAME} ${ARG_SRCS})
    ty_units(${ARG_NAME} ${ARG_UNIT})
    target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main
      ${TRAINYARD_SANITIZER_OPTIONS})
    set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endif()
  if(ARG_PROGRAMS)
    add_dependencies(${ARG_NAME} ${ARG_PROGRAMS})
  endif()
  if(TRAINYARD_SANITIZE)
    add_dependencies(sanitized_tests ${ARG_NAME})
    if("threads" IN_LIST ARG_LABELS)
      add_dependencies(sanitized_threads_tests ${ARG_NAME})
    endif()
  endif()
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit_tests ${ARG_NAME})
  endif()
  if("torch" IN_LIST ARG_LABELS)
    set_target_properties(${ARG_NAME} PROPERTIES TRAINYARD_LIBTORCH ON)
    add_dependencies(torch_tests ${ARG_NAME})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TRAINYARD_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${CMAKE_BINARY_DIR}/tests/${ARG_NAME})
  set(at_once)
  if(ARG_AT_ONCE)
    set(at_once ";TRAINYARD_CASES_AT_ONCE=${ARG_AT_ONCE}")
  endif()
  set_tests_properties(${ARG_NAME} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "TRAINYARD_BIN=${CMAKE_BINARY_DIR}/bin;TRAINYARD_SOURCE=${PROJECT_SOURCE_DIR}${at_once}")
  ty_set_lane(${ARG_NAME} ${ARG_LABELS})
endfunction()

# The test OF once more, with one more variable in its environment.
function(ty_test_again)
  cmake_parse_arguments(ARG "" "NAME;OF;ENVIRONMENT" "" ${ARGN})
  if(NOT TEST ${ARG_OF})
    return()
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${CMAKE_BINARY_DIR}/tests/${ARG_OF})
  foreach(property TIMEOUT LABELS ENVIRONMENT)
    get_test_property(${ARG_OF} ${property} value)
    set_property(TEST ${ARG_NAME} PROPERTY ${property} "${value}")
  endforeach()
  set_property(TEST ${ARG_NAME} APPEND PROPERTY ENVIRONMENT "${ARG_ENVIRONMENT}")
  get_test_property(${ARG_OF} LABELS labels)
  ty_set_lane(${ARG_NAME} ${labels})
  # Programs of one name choose the names of the files that their results go to by looking which are there.
  set_property(TEST ${ARG_OF} ${ARG_NAME} APPEND PROPERTY RESOURCE_LOCK results_of_${ARG_OF})
endfunction()

# One ctest entry for a Python script (standard library only); exit code 77 means skipped, the last line
# of its output says why. A build with a sanitizer has none: scripts are not compiled.
#
# SYSTEM_PYTHON: by the distribution's Python, which has the distribution's packages.
#
#   ty_script_test(NAME tidy SCRIPT tidy.py LABELS unit [ARGS ...] [PROGRAMS ...] [TIMEOUT 60] [SYSTEM_PYTHON])
function(ty_script_test)
  cmake_parse_arguments(ARG "SYSTEM_PYTHON" "NAME;SCRIPT;TIMEOUT" "ARGS;LABELS;PROGRAMS" ${ARGN})
  if(TRAINYARD_SANITIZE)
    return()
  endif()
  find_program(TRAINYARD_PYTHON python3 REQUIRED)
  set(python ${TRAINYARD_PYTHON})
  if(ARG_SYSTEM_PYTHON AND EXISTS /usr/bin/python3)
    set(python /usr/bin/python3)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(ARG_PROGRAMS)
    add_custom_target(${ARG_NAME}_programs ALL DEPENDS ${ARG_PROGRAMS})
    if("unit" IN_LIST ARG_LABELS)
      add_dependencies(unit_tests ${ARG_NAME}_programs)
    endif()
    if("torch" IN_LIST ARG_LABELS)
      add_dependencies(torch_tests ${ARG_NAME}_programs)
    endif()
  endif()
  add_test(NAME ${ARG_NAME}
    COMMAND ${python} ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${ARG_ARGS})
  set_tests_properties(${ARG_NAME} PROPERTIES
    TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" SKIP_RETURN_CODE 77
    ENVIRONMENT "TRAINYARD_BIN=${CMAKE_BINARY_DIR}/bin;TRAINYARD_SOURCE=${PROJECT_SOURCE_DIR};PYTHONDONTWRITEBYTECODE=1")
  ty_set_lane(${ARG_NAME} ${ARG_LABELS})
endfunction()
