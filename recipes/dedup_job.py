"""What spark-submit starts on a cluster: the dedup command, in the session of the cluster."""

from dedup_nb.__main__ import main

if __name__ == "__main__":
    main()
