# Tests of one folder are compiled and linked as one program, a group, and run as before: each has a link to
# the program under its own name, by which tests/group_main.cc knows whose cases to run.
#
#   ty_test(NAME memory_test GROUP base_tests SRCS memory_test.cc DEPS base_process LABELS unit)
#   ty_write_groups()   after the last test
#
# TRAINYARD_GROUP_MAIN is the path of group_main.cc.
#
# A build with a sanitizer has no groups: the thread sanitizer leaves out some of a folder's tests.
# The names of the suites that the sources define.
function(ty_suites result)
  set(suites)
  foreach(source ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    file(STRINGS ${source} lines REGEX "^ *(TEST|TEST_F|TEST_P)\\([A-Za-z0-9_]+,")
    foreach(line ${lines})
      string(REGEX REPLACE "^ *[A-Z_]+\\(([A-Za-z0-9_]+),.*" "\\1" suite "${line}")
      list(APPEND suites ${suite})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES suites)
  if(NOT suites)
    message(FATAL_ERROR "${ARGN}: no test")
  endif()
  set(${result} ${suites} PARENT_SCOPE)
endfunction()

# Adds the test `name` to a group.
function(ty_join_group group name sources dependencies)
  if(NOT TARGET ${group})
    add_executable(${group} ${TRAINYARD_GROUP_MAIN})
    target_include_directories(${group} PRIVATE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${group} PRIVATE GTest::gmock GTest::gtest)
    set_source_files_properties(${TRAINYARD_GROUP_MAIN} TARGET_DIRECTORY ${group} PROPERTIES
      SKIP_UNITY_BUILD_INCLUSION ON COMPILE_DEFINITIONS TRAINYARD_GROUP="${CMAKE_BINARY_DIR}/tests/${group}.inc")
    set_target_properties(${group} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    ty_units(${group})
    set_property(GLOBAL APPEND PROPERTY TRAINYARD_GROUPS ${group})
  endif()
  target_sources(${group} PRIVATE ${sources})
  target_link_libraries(${group} PRIVATE ${dependencies})
  ty_suites(suites ${sources})
  foreach(suite ${suites})
    get_property(owner GLOBAL PROPERTY TRAINYARD_SUITE_${group}_${suite})
    if(owner)
      message(FATAL_ERROR "${group}: ${owner} and ${name} both have a suite ${suite}")
    endif()
    set_property(GLOBAL PROPERTY TRAINYARD_SUITE_${group}_${suite} ${name})
    set_property(GLOBAL APPEND PROPERTY TRAINYARD_GROUP_${group} "    {\"${name}\", \"${suite}\"},")
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  file(CREATE_LINK ${group} ${CMAKE_BINARY_DIR}/tests/${name} SYMBOLIC)
  add_custom_target(${name} DEPENDS ${group})
endfunction()

function(ty_write_groups)
  get_property(groups GLOBAL PROPERTY TRAINYARD_GROUPS)
  foreach(group ${groups})
    get_property(rows GLOBAL PROPERTY TRAINYARD_GROUP_${group})
    string(REPLACE ";" "\n" text "${rows}")
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tests/${group}.inc CONTENT "${text}\n" @ONLY)
  endforeach()
endfunction()
