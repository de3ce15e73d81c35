"""Decision trees and forests: greedy, voting and optimal."""
