"""The command line of mlpengine; installed as the package mlpengine_cli."""
